from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.diagnose.judging import codes, half, judge, labelled, only, serious


def train(size: float, dtype: torch.dtype = torch.float16, steps: int = 6, only_step: int = -1) -> None:
    """One column of the data is `size` times the others."""
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**4, enabled=dtype == torch.float16)
    for step in range(steps):
        x, y = labelled()
        if only_step in (-1, step):
            x[:, 2] = x[:, 2].abs() * size
        optimizer.zero_grad()
        with half(dtype):
            loss = F.cross_entropy(model(x).float(), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def large_weight() -> None:
    model = nn.Linear(16, 4)
    with torch.no_grad():
        model.weight[1, 2] = 1e5
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    for _ in range(4):
        x, y = labelled()
        optimizer.zero_grad()
        with half():
            loss = F.cross_entropy(model(x * 1e-2).float(), y)
        loss.backward()


def half_before_the_model() -> None:
    """The user casts; what enters the model is inf already."""
    model = nn.Linear(16, 4).half()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    for _ in range(4):
        x, y = labelled()
        optimizer.zero_grad()
        F.cross_entropy(model((x * 1e5).half()).float(), y).backward()
        optimizer.step()


def test_a_raw_column(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: train(1e5))
    assert serious(found) == ["AMP407"]
    finding = only(found, "AMP407")
    assert finding.where.module == "0"
    assert "an input of module 0" in finding.claim


def test_a_weight_beyond_the_range(tmp_path: Path) -> None:
    found = judge(tmp_path, large_weight)
    assert serious(found)[0] == "AMP407"
    assert "the weight" in only(found, "AMP407").claim


def test_the_cast_of_the_user(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, half_before_the_model))[0] == "AMP407"


@pytest.mark.parametrize(("size", "dtype"), [(1e3, torch.float16), (1e5, torch.bfloat16)])
def test_silent_inside_the_range(tmp_path: Path, size: float, dtype: torch.dtype) -> None:
    assert serious(judge(tmp_path, lambda: train(size, dtype))) == []


def test_one_outlier_that_the_scaler_skipped_is_a_note(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: train(1e6, only_step=1))
    assert serious(found) == []
    assert codes(found).count("AMP407") == 1
