from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.diagnose.judging import half, judge, labelled, only, serious


def train(weight: float, init_scale: float = 2.0**6, steps: int = 14) -> None:
    """A second loss term whose weight decides how large its gradients are."""
    body, head = nn.Sequential(nn.Linear(16, 32), nn.Tanh()), nn.Linear(32, 4)
    optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=init_scale)
    for step in range(steps):
        x, y = labelled()
        optimizer.zero_grad()
        with half():
            out = head(body(x))
        loss = F.cross_entropy(out.float(), y)
        if step >= 3:
            loss = loss + weight * F.mse_loss(out.float(), x[:, :4])
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def static_scale(scale: float) -> None:
    """A loss scale by hand, in a model that is half as a whole."""
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4)).half()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(6):
        x, _ = labelled()
        optimizer.zero_grad()
        loss = F.mse_loss(model(x.half() * 4).float(), torch.randn(64, 4) * 50)
        (loss * scale).backward()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        if all(bool(torch.isfinite(g).all()) for g in gradients):
            torch._foreach_div_(gradients, scale)
            optimizer.step()


def test_a_loss_term_too_large_for_any_scale(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: train(weight=1e9))
    assert serious(found)[0] == "AMP302"
    finding = only(found, "AMP302")
    assert finding.where.steps is not None
    assert finding.where.steps[0] >= 3
    assert "65504" in finding.claim
    assert set(serious(found)) == {"AMP302"}


def test_a_static_scale_chosen_too_high(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: static_scale(2.0**15))
    assert serious(found)[0] == "AMP302"
    assert "lower a fixed loss scale" in found.findings[0].recommendation


@pytest.mark.parametrize("weight", [1.0, 30.0])
def test_silent_while_the_scaler_finds_its_scale(tmp_path: Path, weight: float) -> None:
    """Backward overflows that vanish as the scale drops are its normal search."""
    assert serious(judge(tmp_path, lambda: train(weight, init_scale=2.0**17))) == []


def test_silent_on_a_static_scale_that_fits(tmp_path: Path) -> None:
    assert "AMP302" not in serious(judge(tmp_path, lambda: static_scale(2.0)))
