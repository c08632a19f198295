from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from tests.diagnose.judging import classifier, half, judge, labelled, line_of, only, serious


def train(init_scale: float, growth_interval: int = 2000, steps: int = 12) -> None:
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 128))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=init_scale, growth_interval=growth_interval)
    for _ in range(steps):
        x = torch.randn(64, 16)
        optimizer.zero_grad()
        with half():
            loss = 1e-3 * F.mse_loss(model(x), torch.randn(64, 128) * 0.05)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def converging() -> None:
    """The gradients of a solved problem vanish at any scale; that is no fault of the scale."""
    model = classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-2)
    scaler = torch.amp.GradScaler("cpu")
    x, y = labelled(128)
    for _ in range(160):
        optimizer.zero_grad()
        with half():
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def test_scale_of_one(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: train(1.0))
    assert serious(found) == ["AMP203"]
    finding = only(found, "AMP203")
    assert finding.where.line == line_of(train, "GradScaler(")
    assert float(finding.change.set["scaler.init_scale"]) >= 2.0**12
    assert any("AMP301" in s for s in finding.symptoms)


def test_advice_is_followed_and_the_finding_is_gone(tmp_path: Path) -> None:
    advised = float(only(judge(tmp_path / "a", lambda: train(1.0)), "AMP203").change.set["scaler.init_scale"])
    assert serious(judge(tmp_path / "b", lambda: train(advised))) == []


def test_silent_when_the_scale_has_grown_out_of_it(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: train(2.0**4, growth_interval=1, steps=16))) == []


def test_silent_on_convergence(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, converging)) == []
