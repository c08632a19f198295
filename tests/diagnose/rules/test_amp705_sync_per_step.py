from __future__ import annotations

from pathlib import Path

from ampscope.diagnose import Diagnosis
from ampscope.trace.reader import open_trace
from tests.diagnose.handmade import H200, Row, call, key, op, step, write
from tests.diagnose.judging import checked, only


def diagnosis(path: Path, wait: float, *reads: Row, gpu: bool = True) -> Diagnosis:
    tables = {
        "steps": [step(i, duration_s=0.1) for i in range(6)],
        "params": [{**key(0), "name": "w", "device": "cuda" if gpu else "cpu", "requires_grad": True}],
        "kernels": [{**key(3), "name": "aten::_local_scalar_dense", "kind": "op", "self_host_s": wait}],
        "calls": [call(1, "scaler.step", file="train.py", line=20)],
        "ops": list(reads),
    }
    with open_trace(write(path, tables, devices=(H200,) if gpu else ())) as trace:
        return checked(trace)


def read(segment: int, line: int) -> Row:
    return op(segment, line, "_local_scalar_dense", file="train.py", line=line, device="cuda")


def test_a_line_that_reads_a_value_in_every_step(tmp_path: Path) -> None:
    finding = only(diagnosis(tmp_path, 0.03, read(0, 30), read(1, 30), read(0, 20), read(1, 20)), "AMP705")
    assert finding.severity == "warning"
    assert finding.where.line == 30
    assert "30 %" in finding.claim


def test_what_the_scaler_reads_is_not_the_script_s(tmp_path: Path) -> None:
    found = diagnosis(tmp_path, 0.03, read(0, 20), read(1, 20))
    assert "AMP705" not in found.coverage.fired


def test_a_read_now_and_then_or_without_waiting_is_fine(tmp_path: Path) -> None:
    assert "AMP705" not in diagnosis(tmp_path / "a", 0.03, read(0, 30)).coverage.fired
    assert "AMP705" in diagnosis(tmp_path / "b", 0.001, read(0, 30), read(1, 30)).coverage.clean


def test_abstains_on_the_cpu(tmp_path: Path) -> None:
    found = diagnosis(tmp_path, 0.03, read(0, 30), read(1, 30), gpu=False)
    assert "AMP705" in [n.code for n in found.coverage.not_measurable]
