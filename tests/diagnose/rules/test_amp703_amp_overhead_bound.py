from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F

from ampscope.diagnose import Diagnosis
from ampscope.trace.reader import open_trace
from tests.diagnose.handmade import H200, Row, key, step, write
from tests.diagnose.judging import checked, classifier, half, judge, labelled, only, serious


def train(path: Path, width: int, batch: int) -> Diagnosis:
    def run() -> None:
        model = classifier(width)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        for _ in range(3):
            x, y = labelled(batch)
            optimizer.zero_grad()
            with half(torch.bfloat16):
                loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()

    return judge(path, run)


def test_tiny_products_on_the_cpu(tmp_path: Path) -> None:
    found = train(tmp_path, width=16, batch=8)
    assert serious(found) == []
    assert only(found, "AMP703").severity == "info"


def test_silent_when_there_is_something_to_compute(tmp_path: Path) -> None:
    assert "AMP703" not in train(tmp_path, width=256, batch=64).coverage.fired


def timed(
    path: Path, with_amp: float, without: float, *, gpu: bool = False, kernels: tuple[Row, ...] = ()
) -> Diagnosis:
    kind = "cuda" if gpu else "cpu"
    rows = []
    for i in range(60):
        amp = i >= 30 or without == 0.0
        dtype = "float16" if amp else None
        rows.append(step(i, duration_s=with_amp if amp else without, autocast_dtype=dtype, own_s=0.0))
    param = {**key(0), "name": "w", "device": kind, "dtype": "float32", "requires_grad": True}
    tables = {"steps": rows, "params": [param], "kernels": list(kernels)}
    with open_trace(write(path, tables, devices=(H200,) if gpu else ())) as trace:
        return checked(trace)


def test_both_ways_in_one_run_are_compared(tmp_path: Path) -> None:
    finding = only(timed(tmp_path, with_amp=4e-3, without=1e-3), "AMP703")
    assert finding.severity == "info"
    assert "4.0 times slower" in finding.claim
    assert finding.change.set == {"autocast.enabled": "false"}


def test_on_a_gpu_that_is_a_warning(tmp_path: Path) -> None:
    assert only(timed(tmp_path, with_amp=4e-3, without=1e-3, gpu=True), "AMP703").severity == "warning"


def test_silent_when_amp_is_faster(tmp_path: Path) -> None:
    assert "AMP703" in timed(tmp_path, with_amp=1e-3, without=2e-3).coverage.clean


def test_a_gpu_that_mostly_waits(tmp_path: Path) -> None:
    kernel = {**key(3), "name": "gemm", "kind": "kernel", "self_device_s": 5e-4}
    found = timed(tmp_path / "a", with_amp=4e-3, without=0.0, gpu=True, kernels=(kernel,))
    assert "the host sets the pace" in only(found, "AMP703").claim
    busy = {**kernel, "self_device_s": 3.5e-3}
    assert "AMP703" in timed(tmp_path / "b", 4e-3, 0.0, gpu=True, kernels=(busy,)).coverage.clean
