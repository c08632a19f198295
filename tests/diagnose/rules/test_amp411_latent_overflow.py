from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from tests.diagnose.judging import half, judge, labelled, only, serious


class Amplifier(nn.Module):
    def __init__(self, start: float, growth: float) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(16, 16), nn.Linear(16, 4)
        self.size, self.growth = start, growth

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.inner.weight.copy_(torch.eye(16) * self.size)
        self.size *= self.growth
        h = self.inner(x.clamp(-2, 2))
        out: torch.Tensor = self.head(h.float() / self.size)
        return out


def train(start: float, growth: float, dtype: torch.dtype = torch.float16, steps: int = 24) -> None:
    model = Amplifier(start, growth)
    optimizer = torch.optim.SGD(model.head.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8, enabled=dtype == torch.float16)
    for _ in range(steps):
        x, y = labelled()
        optimizer.zero_grad()
        with half(dtype):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def test_growth_towards_the_end_of_the_range(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: train(2000.0, 1.1), every=1)
    assert serious(found) == ["AMP411"]
    finding = only(found, "AMP411")
    assert finding.where.module == "inner"
    assert "overflows near step" in finding.claim


def test_silent_on_large_values_that_do_not_grow(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: train(15000.0, 1.0), every=1)) == []


def test_silent_on_growth_far_from_the_end(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: train(1.0, 1.1), every=1)) == []


def test_silent_in_bf16(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: train(2000.0, 1.1, torch.bfloat16), every=1)) == []
