from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.diagnose.judging import half, judge, labelled, line_of, only, serious


class Stream(nn.Module):
    """A residual stream to which every block adds."""

    def __init__(self, gain: float, float32: bool) -> None:
        super().__init__()
        self.enter, self.norm, self.leave = nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 4)
        self.blocks = nn.ModuleList(nn.Linear(32, 32) for _ in range(6))
        self.gain, self.float32 = gain, float32

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        stream = self.enter(x)
        if self.float32:
            stream = stream.float()
        for block in self.blocks:
            branch = torch.tanh(block(self.norm(stream))) * self.gain
            stream = stream + branch.to(stream.dtype)
        out: torch.Tensor = self.leave(self.norm(stream))
        return out


def train(gain: float, float32: bool = False, from_step: int = 0) -> None:
    model = Stream(1.0, float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**7)
    for step in range(9):
        x, y = labelled()
        model.gain = gain if step >= from_step else 1.0
        optimizer.zero_grad()
        with half():
            loss = F.cross_entropy(model(x).float(), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def masked_out() -> None:
    """A product that overflows and goes nowhere."""
    model = nn.Linear(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu")
    for _ in range(4):
        x, y = labelled()
        optimizer.zero_grad()
        with half():
            out = model(x)
            (out * 60000.0) * 60000.0
            loss = (out - F.one_hot(y, 4).to(out.dtype)).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@pytest.mark.parametrize("from_step", [0, 4])
def test_a_residual_stream_outgrows_half(tmp_path: Path, from_step: int) -> None:
    found = judge(tmp_path, lambda: train(2e4, from_step=from_step))
    assert serious(found) == ["AMP402"]
    finding = only(found, "AMP402")
    assert finding.where.line == line_of(Stream.forward, "stream = stream + branch")
    assert finding.where.steps is not None
    assert finding.where.steps[0] >= from_step


@pytest.mark.parametrize(("gain", "float32"), [(1.0, False), (2e4, True)])
def test_silent_on_a_small_or_a_float32_stream(tmp_path: Path, gain: float, float32: bool) -> None:
    assert serious(judge(tmp_path, lambda: train(gain, float32))) == []


def test_silent_on_an_overflow_that_reaches_nothing(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, masked_out)) == []
