from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.diagnose.judging import half, judge, labelled, line_of, only, serious


class Scores(nn.Module):
    """Attention scores with shared offsets, as trained heads have them."""

    def __init__(self, scale_first: bool) -> None:
        super().__init__()
        self.qk, self.out = nn.Linear(16, 512), nn.Linear(8, 4)
        self.scale_first = scale_first
        with torch.no_grad():
            self.qk.bias[:] = 30.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k = self.qk(x).view(-1, 8, 2, 256).unbind(2)
        if self.scale_first:
            q = q / 16.0
        scores = q @ k.transpose(-2, -1)
        if not self.scale_first:
            scores = scores / 16.0
        out: torch.Tensor = self.out(scores.softmax(-1).mean(1))
        return out


def train(scale_first: bool, dtype: torch.dtype = torch.float16, wide: bool = False) -> None:
    model: nn.Module = Scores(scale_first)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, enabled=dtype == torch.float16)
    for _ in range(8):
        x = torch.randn(16 * 8, 16)
        optimizer.zero_grad()
        with half(dtype):
            loss = F.cross_entropy(model(x).float(), torch.randint(0, 4, (16,)))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def masked_out() -> None:
    """An overflow whose result is thrown away reaches neither loss nor gradient."""
    model = nn.Linear(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    for _ in range(6):
        x, y = labelled()
        optimizer.zero_grad()
        with half():
            (x.half() * 300) @ (x.half().t() * 300)
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def test_scores_overflow_before_they_are_scaled(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: train(scale_first=False))
    assert serious(found) == ["AMP401"]
    finding = only(found, "AMP401")
    assert finding.where.line == line_of(Scores.forward, "scores = q @ k")
    assert finding.where.op is not None
    assert "65504" in finding.claim
    assert any("AMP121" in s or "skipped" in s for s in finding.symptoms)


@pytest.mark.parametrize(("scale_first", "dtype"), [(True, torch.float16), (False, torch.bfloat16)])
def test_silent_when_scaled_first_or_in_bf16(tmp_path: Path, scale_first: bool, dtype: torch.dtype) -> None:
    assert serious(judge(tmp_path, lambda: train(scale_first, dtype))) == []


def test_silent_on_an_overflow_that_reaches_nothing(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, masked_out)) == []
