from __future__ import annotations

from pathlib import Path

from ampscope.diagnose import Diagnosis
from ampscope.trace.reader import open_trace
from ampscope.trace.records import DeviceInfo
from tests.diagnose.handmade import V100, key, op, step, write
from tests.diagnose.judging import checked, only


def diagnosis(path: Path, gpu: DeviceInfo | None, native: bool, dtype: str) -> Diagnosis:
    kind = "cuda" if gpu else "cpu"
    tables = {
        "steps": [step(i, autocast_dtype=dtype, autocast_device=kind) for i in range(3)],
        "params": [{**key(0), "name": "w", "device": kind, "dtype": "float32", "requires_grad": True}],
        "ops": [op(1, 0, "mm", dtype)],
    }
    with open_trace(write(path, tables, bf16_native=native, devices=(gpu,) if gpu else ())) as trace:
        return checked(trace)


def test_bf16_on_a_v100(tmp_path: Path) -> None:
    finding = only(diagnosis(tmp_path, V100, native=False, dtype="bfloat16"), "AMP702")
    assert finding.severity == "warning"
    assert "V100" in finding.claim
    assert finding.change.set == {"autocast.dtype": "float16"}


def test_on_a_cpu_it_is_for_information(tmp_path: Path) -> None:
    assert only(diagnosis(tmp_path, None, native=False, dtype="bfloat16"), "AMP702").severity == "info"


def test_silent_where_it_is_native_or_not_used(tmp_path: Path) -> None:
    assert "AMP702" in diagnosis(tmp_path / "a", None, native=True, dtype="bfloat16").coverage.clean
    assert "AMP702" in diagnosis(tmp_path / "b", V100, native=False, dtype="float16").coverage.clean
