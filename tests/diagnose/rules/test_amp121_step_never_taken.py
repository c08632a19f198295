from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F

from tests.diagnose.judging import classifier, half, judge, labelled, only, serious


def always_inf(steps: int = 6) -> None:
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    for _ in range(steps):
        x, y = labelled()
        optimizer.zero_grad()
        with half():
            loss = F.cross_entropy(model(x), y) + float("inf")
        scaler.scale(loss * float("inf")).backward()
        scaler.step(optimizer)
        scaler.update()


def forgotten(step: bool) -> None:
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(8):
        x, y = labelled()
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        if step:
            optimizer.step()


def saliency() -> None:
    """Gradients without any optimizer."""
    model = classifier()
    for _ in range(8):
        x, y = labelled()
        x.requires_grad_()
        F.cross_entropy(model(x), y).backward()


def test_every_step_skipped(tmp_path: Path) -> None:
    found = judge(tmp_path, always_inf)
    assert "AMP121" in found.coverage.fired
    assert serious(found)
    assert "skipped" in found.findings[0].claim


def test_step_forgotten(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: forgotten(step=False))
    assert serious(found) == ["AMP121"]
    assert "never stepped" in only(found, "AMP121").claim


def test_silent_when_it_steps(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: forgotten(step=True))) == []


def test_silent_without_an_optimizer(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, saliency)) == []
