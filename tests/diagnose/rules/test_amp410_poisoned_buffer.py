from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from tests.diagnose.judging import codes, half, judge, labelled, only, serious


def train(outlier: float, guard: bool = False) -> None:
    """One batch with an outlier meets a batch norm in half."""
    model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**7)
    for step in range(12):
        x, y = labelled()
        if step == 4:
            x[3] *= outlier
        if guard:
            x = x.clamp(-5.0, 5.0)
        optimizer.zero_grad()
        with half():
            loss = F.cross_entropy(model(x).float(), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def moving_average(outlier: float) -> None:
    """The loss is divided by its own moving average, kept as a plain tensor."""
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**7)
    average = torch.ones(())
    for step in range(12):
        x, y = labelled()
        if step == 4:
            x[3] = outlier
        optimizer.zero_grad()
        with half():
            loss = F.cross_entropy(model(x).float(), y)
        average = 0.9 * average + 0.1 * loss.detach()
        scaler.scale(loss / average).backward()
        scaler.step(optimizer)
        scaler.update()


def test_running_statistics(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: train(1e5))
    assert serious(found) == ["AMP410"]
    finding = only(found, "AMP410")
    assert finding.where.tensor in ("1.running_mean", "1.running_var")
    assert finding.where.steps is not None
    assert finding.where.steps[0] == 4


def test_an_average_kept_by_hand(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: moving_average(1e5))
    assert serious(found)[0] == "AMP410"


def test_silent_without_the_outlier_or_with_a_guard(tmp_path: Path) -> None:
    assert "AMP410" not in codes(judge(tmp_path, lambda: train(1.0)))
    assert "AMP410" not in codes(judge(tmp_path / "guarded", lambda: train(1e5, guard=True)))
