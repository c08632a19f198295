from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.diagnose.judging import codes, half, judge, only, serious


def train(lr: float, dtype: torch.dtype = torch.float16, steps: int = 12) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    scaler = torch.amp.GradScaler("cpu", init_scale=16.0, enabled=dtype == torch.float16)
    goal = torch.randn(8, 1)
    for _ in range(steps):
        x = torch.randn(64, 8)
        optimizer.zero_grad()
        with half(dtype):
            out = model(x)
        loss = F.mse_loss(out.float(), x @ goal)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def precision_fault() -> None:
    """An overflow out of the blue: loss and weights were quiet before."""
    model = nn.Linear(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
    for step in range(10):
        x = torch.randn(64, 16) * (1.0 if step < 6 else 1e4)
        optimizer.zero_grad()
        with half():
            out = model(x)
            loss = F.mse_loss((out * out).float(), torch.ones(64, 4))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_learning_rate_that_explodes(tmp_path: Path, dtype: torch.dtype) -> None:
    found = judge(tmp_path, lambda: train(1.5, dtype))
    assert serious(found) == ["AMP417"]
    assert "precision is innocent" in only(found, "AMP417").claim


def test_silent_on_a_small_learning_rate(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: train(0.01))) == []


def test_silent_on_an_overflow_without_divergence(tmp_path: Path) -> None:
    assert "AMP417" not in codes(judge(tmp_path, precision_fault))
