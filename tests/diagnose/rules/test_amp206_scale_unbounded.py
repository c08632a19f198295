from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F

from tests.diagnose.judging import classifier, half, judge, labelled, only, serious


def train(weight: float, steps: int = 30) -> None:
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=1)
    for _ in range(steps):
        x, y = labelled()
        optimizer.zero_grad()
        with half():
            loss = weight * F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def test_scale_grows_without_bound(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: train(0.0))
    assert serious(found) == ["AMP206"]
    assert "2^10" in only(found, "AMP206").claim or "1024" in only(found, "AMP206").claim


def test_silent_when_overflow_bounds_the_scale(tmp_path: Path) -> None:
    assert "AMP206" not in judge(tmp_path, lambda: train(1.0)).coverage.fired
