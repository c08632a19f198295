from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from tests.diagnose.judging import classifier, half, judge, labelled, line_of, only, serious


def train(unscale_after: int) -> None:
    model = classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    for _ in range(6):
        optimizer.zero_grad()
        for micro in range(3):
            x, y = labelled(32)
            with half():
                loss = F.cross_entropy(model(x), y) / 3
            scaler.scale(loss).backward()
            if micro == unscale_after:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()


def two_optimizers() -> None:
    """Each optimizer is unscaled as soon as its own backward is done."""
    a, b = nn.Linear(16, 4), nn.Linear(16, 4)
    opt_a, opt_b = torch.optim.SGD(a.parameters(), lr=0.01), torch.optim.SGD(b.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    for _ in range(6):
        x, y = labelled()
        opt_a.zero_grad()
        opt_b.zero_grad()
        for model, optimizer in ((a, opt_a), (b, opt_b)):
            with half():
                loss = F.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
        scaler.step(opt_a)
        scaler.step(opt_b)
        scaler.update()


def test_unscale_before_the_last_micro_batch(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: train(unscale_after=0))
    assert serious(found) == ["AMP108"]
    assert only(found, "AMP108").where.line == line_of(train, "scaler.unscale_(")


def test_silent_after_the_last_micro_batch(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: train(unscale_after=2))) == []


def test_silent_when_the_later_backward_feeds_another_optimizer(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, two_optimizers)) == []
