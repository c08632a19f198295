from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F

from tests.diagnose.judging import classifier, half, judge, labelled, only, serious


def train(clear_always: bool, steps: int = 20) -> None:
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20)
    for _ in range(steps):
        x, y = labelled()
        with half():
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        if clear_always or scaler.get_scale() >= before:
            optimizer.zero_grad()


def test_inf_left_over_from_a_skipped_step(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: train(clear_always=False))
    assert serious(found) == ["AMP109"]
    finding = only(found, "AMP109")
    assert "left over" in finding.claim
    assert any("skipped" in s for s in finding.symptoms)


def test_silent_when_gradients_are_always_cleared(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: train(clear_always=True))) == []
