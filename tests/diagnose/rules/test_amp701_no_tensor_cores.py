from __future__ import annotations

from pathlib import Path

from ampscope.diagnose import Diagnosis
from ampscope.trace.reader import open_trace
from ampscope.trace.records import DeviceInfo
from tests.diagnose.handmade import H200, P100, Row, key, op, step, write
from tests.diagnose.judging import checked, only

PLAIN: Row = {"name": "gemmSN_NN_kernel_half", "kind": "kernel", "self_device_s": 0.3, "tensor_core": False}
CORE: Row = {"name": "ampere_fp16_s16816gemm", "kind": "kernel", "self_device_s": 0.7, "tensor_core": True}


def diagnosis(path: Path, gpu: DeviceInfo | None, width: int, *kernels: Row) -> Diagnosis:
    shapes = [f"64x{width}", f"{width}x128"]
    product = op(1, 0, "mm", "float16", flops=1e9, device="cuda", in_shapes=shapes, module="head")
    tables = {
        "steps": [step(i) for i in range(4)],
        "params": [{**key(0), "name": "w", "device": "cuda" if gpu else "cpu", "requires_grad": True}],
        "ops": [product],
        "kernels": [{**key(3), **k} for k in kernels],
    }
    with open_trace(write(path, tables, devices=(gpu,) if gpu else ())) as trace:
        return checked(trace)


def test_dimensions_that_are_no_multiples_of_8(tmp_path: Path) -> None:
    finding = only(diagnosis(tmp_path, H200, 1001, PLAIN, CORE), "AMP701")
    assert finding.severity == "warning"
    assert finding.where.module == "head"
    assert "1001" in finding.claim
    assert "30 %" in finding.claim


def test_without_a_profile_it_is_a_guess(tmp_path: Path) -> None:
    assert only(diagnosis(tmp_path, H200, 1001), "AMP701").severity == "info"


def test_silent_when_the_kernels_use_tensor_cores_all_the_same(tmp_path: Path) -> None:
    assert "AMP701" in diagnosis(tmp_path, H200, 1001, CORE).coverage.clean


def test_silent_when_aligned_and_without_tensor_cores(tmp_path: Path) -> None:
    assert "AMP701" in diagnosis(tmp_path / "a", H200, 1024, PLAIN, CORE).coverage.clean
    assert "AMP701" in diagnosis(tmp_path / "b", P100, 1001, PLAIN).coverage.clean


def test_abstains_on_the_cpu(tmp_path: Path) -> None:
    assert "AMP701" in [n.code for n in diagnosis(tmp_path, None, 1001).coverage.not_measurable]
