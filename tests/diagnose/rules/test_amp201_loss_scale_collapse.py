from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from tests.diagnose.judging import classifier, half, judge, labelled, only, serious


def train(bad_steps: range, steps: int = 40, level: str = "pulse") -> None:
    """Gradients are made non-finite by a hook in `bad_steps`: nothing of it is in the ops or in the loss."""
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    for step in range(steps):
        x, y = labelled()
        optimizer.zero_grad()
        with half():
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        if step in bad_steps:
            grad = model[0].weight.grad
            assert isinstance(grad, torch.Tensor)
            grad[0, 0] = float("nan")
        scaler.step(optimizer)
        scaler.update()


def test_scale_that_falls_and_does_not_come_back(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: train(range(10, 40)))
    assert serious(found) == ["AMP201"]
    finding = only(found, "AMP201")
    assert "2^12" in finding.claim
    assert any("skipped" in s for s in finding.symptoms)


def test_silent_on_a_scale_that_is_found_anew(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: train(range(10, 18)))) == []


def test_silent_on_a_few_skips(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: train(range(10, 13)))) == []


def summed(weight: float) -> None:
    """One branch whose gradients overflow even at a loss scale of 1, and a short growth interval."""
    model = nn.Linear(32, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    scaler = torch.amp.GradScaler("cpu", growth_interval=5)
    for _ in range(50):
        x = torch.randn(256, 32)
        optimizer.zero_grad()
        with half():
            loss = ((model(x).float() - x[:, :8]) * weight).square().sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def test_a_scale_that_settles_below_one_is_no_matter_of_its_start_or_growth(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: summed(60.0))
    assert serious(found) == ["AMP201"]
    assert only(found, "AMP201").severity == "warning"
