from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.diagnose.judging import half, judge, labelled, line_of, only, serious


class RMSNorm(nn.Module):
    def __init__(self, float32: bool) -> None:
        super().__init__()
        self.float32 = float32

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = x.float() if self.float32 else x
        return (h * torch.rsqrt(h.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def train(gain: float, float32: bool = False) -> None:
    model = nn.Sequential(nn.Linear(16, 32), RMSNorm(float32), nn.Linear(32, 4))
    with torch.no_grad():
        next(iter(model.parameters())).mul_(gain)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**7)
    for _ in range(4):
        x, y = labelled()
        optimizer.zero_grad()
        with half():
            loss = F.cross_entropy(model(x).float(), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def infinite_masks() -> None:
    """1 / inf is meant to be zero here."""
    model = nn.Linear(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(4):
        x, y = labelled()
        optimizer.zero_grad()
        with half():
            out = model(x)
            weight = 1.0 / torch.zeros(64, 1, dtype=out.dtype).masked_fill(x[:, :1] > 0, float("inf")).add(
                1.0
            )
            loss = F.cross_entropy((out * weight).float(), y)
        loss.backward()
        optimizer.step()


def test_a_norm_goes_silent(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: train(2000.0))
    assert serious(found) == ["AMP408"]
    finding = only(found, "AMP408")
    assert finding.where.op == "aten::rsqrt"
    assert finding.where.line == line_of(RMSNorm.forward, "torch.rsqrt")
    assert "silent" in finding.claim


@pytest.mark.parametrize(("gain", "float32"), [(1.0, False), (2000.0, True)])
def test_silent(tmp_path: Path, gain: float, float32: bool) -> None:
    assert serious(judge(tmp_path, lambda: train(gain, float32))) == []


def test_silent_on_infinities_that_are_written_down(tmp_path: Path) -> None:
    assert "AMP408" not in serious(judge(tmp_path, infinite_masks))
