from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.diagnose.judging import half, judge, labelled, line_of, only, serious


class Island(nn.Module):
    """A norm in float32 behind a projection in half."""

    def __init__(self, producer_inside: bool) -> None:
        super().__init__()
        self.lift, self.norm, self.head = nn.Linear(16, 64), nn.LayerNorm(64), nn.Linear(64, 4)
        self.producer_inside = producer_inside

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.producer_inside:
            x = self.lift(x)
        with torch.autocast("cpu", enabled=False):
            h = self.lift(x.float()) if self.producer_inside else x.float()
            h = self.norm(h)
        out: torch.Tensor = self.head(h)
        return out


def train(size: float, producer_inside: bool = False) -> None:
    model = Island(producer_inside)
    with torch.no_grad():
        model.lift.weight.mul_(4.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**7)
    for _ in range(6):
        x, y = labelled()
        optimizer.zero_grad()
        with half():
            loss = F.cross_entropy(model(x.clamp(-2, 2) * size).float(), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def loss_in_float32() -> None:
    """Logits that overflow, a loss in float32: no island inside the model."""
    head = nn.Linear(64, 4)
    with torch.no_grad():
        head.weight.mul_(500.0)
    model = nn.Sequential(nn.Linear(16, 64), head)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**7)
    for _ in range(6):
        x, y = labelled()
        optimizer.zero_grad()
        with half():
            logits = model(x * 1000)
        loss = F.cross_entropy(logits.float(), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def test_inf_enters_the_island(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: train(3e4))
    assert serious(found) == ["AMP412"]
    finding = only(found, "AMP412")
    assert finding.where.module == "lift"
    assert finding.where.line == line_of(Island.forward, "x = self.lift(x)")
    assert any("AMP401" in s for s in finding.symptoms)


def test_a_loss_in_float32_is_no_island(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, loss_in_float32)) == ["AMP401"]


@pytest.mark.parametrize(("size", "inside"), [(1.0, False), (3e4, True)])
def test_silent(tmp_path: Path, size: float, inside: bool) -> None:
    assert serious(judge(tmp_path, lambda: train(size, inside))) == []
