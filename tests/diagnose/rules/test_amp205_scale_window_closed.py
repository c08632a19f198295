from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from tests.diagnose.judging import half, judge, only, serious


class Uneven(nn.Module):
    """Two branches whose gradients are 2^30 apart when `weight` is small."""

    def __init__(self) -> None:
        super().__init__()
        self.loud, self.quiet = nn.Linear(16, 8), nn.Linear(16, 512)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.loud(x), self.quiet(x)


def train(weight: float, steps: int = 20) -> None:
    model = Uneven()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-7)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**6)
    for _ in range(steps):
        x = torch.randn(64, 16)
        optimizer.zero_grad()
        with half():
            loud, quiet = model(x)
            loss = 20 * (loud.float() - 3).pow(2).sum() + weight * F.mse_loss(quiet.float(), x.repeat(1, 32))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def test_one_branch_closes_the_window_above_and_another_below(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: train(1e-4))
    assert serious(found) == ["AMP205"]
    finding = only(found, "AMP205")
    assert "loud closes the window above" in finding.claim
    assert "quiet below" in finding.claim or "below" in finding.claim
    assert any("AMP301" in s for s in finding.symptoms)


def test_silent_on_branches_of_similar_size(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: train(1e4))) == []
