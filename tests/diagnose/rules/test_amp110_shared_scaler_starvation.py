from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from tests.diagnose.judging import half, judge, serious


def train(shared: bool, steps: int = 40) -> None:
    """One head has a sum over many elements for its loss, the other a mean times a small weight."""
    loud, quiet = nn.Linear(16, 64), nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 256))
    opt_loud = torch.optim.SGD(loud.parameters(), lr=1e-9)
    opt_quiet = torch.optim.SGD(quiet.parameters(), lr=1e-2)
    one = torch.amp.GradScaler("cpu", growth_interval=8)
    other = one if shared else torch.amp.GradScaler("cpu", growth_interval=8)
    for _ in range(steps):
        x = torch.randn(64, 16)
        opt_loud.zero_grad()
        with half():
            loss = 3000 * (loud(x).float() - 5).pow(2).sum()
        one.scale(loss).backward()
        one.step(opt_loud)
        opt_quiet.zero_grad()
        with half():
            loss = 1e-2 * F.mse_loss(quiet(x), torch.randn(64, 256) * 0.05)
        other.scale(loss).backward()
        other.step(opt_quiet)
        one.update()
        if not shared:
            other.update()


def test_one_optimizer_sets_the_scale_and_another_starves(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: train(shared=True))
    finding = found.findings[0]
    assert finding.code == "AMP110"
    assert "SGD#0 caused" in finding.claim
    assert "SGD#1" in finding.claim
    assert serious(found) == ["AMP110"]


def test_silent_with_a_scaler_each(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: train(shared=False))
    assert "AMP110" not in serious(found)
    assert "AMP301" not in serious(found)


def test_silent_when_two_optimizers_share_a_scaler_that_suits_both(tmp_path: Path) -> None:
    def both() -> None:
        a, b = nn.Linear(16, 8), nn.Linear(16, 8)
        opts = [torch.optim.SGD(m.parameters(), lr=0.01) for m in (a, b)]
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20)
        for _ in range(15):
            x = torch.randn(32, 16)
            for model, optimizer in zip((a, b), opts, strict=True):
                optimizer.zero_grad()
                with half():
                    loss = F.mse_loss(model(x).float(), x[:, :8])
                scaler.scale(loss).backward()
                scaler.step(optimizer)
            scaler.update()

    assert "AMP110" not in judge(tmp_path, both).coverage.fired


def summed(weight: float) -> None:
    """One loss, one backward, two optimizers; the scale falls far before a census comes round again."""
    loud, quiet = nn.Linear(16, 8), nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 8))
    opts = [torch.optim.SGD(loud.parameters(), lr=1e-12), torch.optim.SGD(quiet.parameters(), lr=1e-2)]
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14)
    for _ in range(60):
        x = torch.randn(64, 16)
        for optimizer in opts:
            optimizer.zero_grad()
        with half():
            a, b = loud(x), quiet(x)
        scaler.scale(
            weight * (a.float() - 5).square().sum() + 1e-4 * F.mse_loss(b.float(), x[:, :8])
        ).backward()
        for optimizer in opts:
            scaler.step(optimizer)
        scaler.update()


def test_all_gradients_are_zero_at_the_scale_that_another_optimizer_set(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: summed(1e5), budget=0.5)
    assert found.findings[0].code == "AMP110"
    assert serious(found) == ["AMP110"]


def test_silent_where_the_losses_are_alike(tmp_path: Path) -> None:
    assert "AMP110" not in judge(tmp_path, lambda: summed(1e-4)).coverage.fired
