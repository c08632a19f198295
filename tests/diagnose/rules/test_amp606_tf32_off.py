from __future__ import annotations

from pathlib import Path

import pytest

from ampscope.diagnose import Diagnosis
from ampscope.trace.reader import open_trace
from ampscope.trace.records import DeviceInfo
from tests.diagnose.handmade import H200, V100, Row, key, step, write
from tests.diagnose.judging import checked, only


def kernel(name: str, seconds: float, **columns: object) -> Row:
    return {
        **key(3),
        "name": name,
        "kind": "kernel",
        "calls": 1,
        "self_host_s": 0.0,
        "self_device_s": seconds,
        **columns,
    }


def diagnosis(path: Path, gpu: DeviceInfo | None, *kernels: Row) -> Diagnosis:
    param = {**key(0), "name": "w", "device": "cuda" if gpu else "cpu", "requires_grad": True}
    tables = {"steps": [step(i) for i in range(4)], "params": [param], "kernels": list(kernels)}
    with open_trace(write(path, tables, devices=(gpu,) if gpu else ())) as trace:
        return checked(trace)


PLAIN = kernel("ampere_sgemm_128x64_nn", 0.6, tensor_core=False)
OTHER = kernel("void at::native::vectorized_elementwise_kernel", 0.4, tensor_core=False)


def test_float32_products_without_tensor_cores(tmp_path: Path) -> None:
    finding = only(diagnosis(tmp_path, H200, PLAIN, OTHER), "AMP606")
    assert "60 %" in finding.claim
    assert finding.change.set == {"matmul.precision": "high"}


@pytest.mark.parametrize(
    "name",
    [
        "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n",
        "ampere_fp16_s16816gemm_fp16_128x64_ldg8",
        "cutlass_tf32_sgemm",
    ],
)
def test_silent_with_tensor_cores(tmp_path: Path, name: str) -> None:
    found = diagnosis(tmp_path, H200, kernel(name, 0.9, tensor_core=True), OTHER)
    assert "AMP606" in found.coverage.clean


def test_silent_where_there_is_no_tf32(tmp_path: Path) -> None:
    assert "AMP606" in diagnosis(tmp_path, V100, PLAIN).coverage.clean


def test_abstains_on_the_cpu(tmp_path: Path) -> None:
    found = diagnosis(tmp_path, None, PLAIN)
    assert "AMP606" in [n.code for n in found.coverage.not_measurable]
