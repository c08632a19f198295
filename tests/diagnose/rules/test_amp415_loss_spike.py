from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.diagnose.judging import codes, half, judge, only, serious


def train(rate: float, steps: int = 60, noise: float = 0.0) -> None:
    """Clusters that are learnt well; `rate` is the learning rate of three steps in the middle."""
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    centres = 2 * torch.randn(5, 8)
    for step in range(steps):
        y = torch.randint(0, 5, (64,))
        x = centres[y] + torch.randn(64, 8)
        optimizer.param_groups[0]["lr"] = rate if 36 <= step < 39 else 0.2
        optimizer.zero_grad()
        with half(torch.bfloat16):
            out = model(x)
        loss = F.cross_entropy(out.float(), y)
        if noise and step % 7 == 0:
            loss = loss * noise
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()


def test_a_learning_rate_that_jumps(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: train(20.0), every=1)
    assert serious(found) == ["AMP415"]
    finding = only(found, "AMP415")
    assert finding.where.steps is not None
    assert 36 <= finding.where.steps[0] <= 39
    assert "learning rate had risen" in finding.claim


@pytest.mark.parametrize("noise", [0.0, 30.0])
def test_silent_on_a_smooth_and_on_a_noisy_loss(tmp_path: Path, noise: float) -> None:
    assert "AMP415" not in codes(judge(tmp_path, lambda: train(0.2, noise=noise), every=1))


def another_task() -> None:
    """The targets change for good, and the outputs follow as they are learnt: no spike of the model's making."""
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(70):
        x = torch.randn(64, 8)
        with half(torch.bfloat16):
            out = model(x)
        loss = F.mse_loss(out.float(), x[:, :1] * (1.0 if step < 30 else 10.0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@pytest.mark.parametrize("every", [1, 12, 16])
def test_silent_when_the_task_changes(tmp_path: Path, every: int) -> None:
    """Also where the outputs were next read when the model had learnt the other task."""
    assert "AMP415" not in codes(judge(tmp_path, another_task, level="range", every=every))
