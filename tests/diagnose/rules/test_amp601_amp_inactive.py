from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from ampscope.diagnose import Diagnosis
from ampscope.trace.reader import open_trace
from ampscope.trace.records import DeviceInfo
from tests.diagnose.handmade import H200, P100, V100, key, op, step, write
from tests.diagnose.judging import checked, classifier, judge, labelled, only, serious


def on_gpu(path: Path, dtype: str, gpu: DeviceInfo, bf16_native: bool = True) -> Diagnosis:
    """What a run on that GPU records of its matrix products: no such machine is needed to judge it."""
    rows = {
        "steps": [step(i) for i in range(3)],
        "params": [{**key(0), "name": "w", "device": "cuda", "owner": "SGD#0", "dtype": "float32"}],
        "ops": [
            {**op(1, 1, "mm", dtype, flops=1e9), "device": "cuda"},
            {**op(1, 2, "mm", "float32", flops=1e6), "device": "cuda"},
            {**op(1, 3, "add", "float32"), "device": "cuda"},
        ],
    }
    with open_trace(write(path, rows, devices=(gpu,), bf16_native=bf16_native)) as trace:
        return checked(trace)


@pytest.mark.parametrize(
    ("gpu", "native", "advice"),
    [(H200, True, "bfloat16"), (V100, False, "float16) and a torch.amp.GradScaler")],
)
def test_all_matmul_work_in_float32(tmp_path: Path, gpu: DeviceInfo, native: bool, advice: str) -> None:
    found = on_gpu(tmp_path, "float32", gpu, native)
    assert serious(found) == ["AMP601"]
    assert advice in only(found, "AMP601").recommendation


def test_silent_when_the_work_is_in_half(tmp_path: Path) -> None:
    assert serious(on_gpu(tmp_path, "bfloat16", H200)) == []


def test_silent_without_matrix_units(tmp_path: Path) -> None:
    assert serious(on_gpu(tmp_path, "float32", P100, False)) == []


def test_not_measurable_on_a_cpu(tmp_path: Path) -> None:
    def train() -> None:
        model = classifier()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            x, y = labelled()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()

    found = judge(tmp_path, train)
    assert {n.code: n.why for n in found.coverage.not_measurable}["AMP601"] == "no CUDA device in this run"
