from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F

from tests.diagnose.judging import classifier, half, judge, labelled, line_of, only, serious


def train(inside: bool) -> None:
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(4):
        x, y = labelled()
        optimizer.zero_grad()
        with half(torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
            if inside:
                loss.backward()
        if not inside:
            loss.backward()
        optimizer.step()


def test_a_note_for_backward_inside_autocast(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: train(inside=True))
    assert serious(found) == []
    finding = only(found, "AMP118")
    assert finding.severity == "info"
    assert finding.where.line == line_of(train, "loss.backward()")


def test_silent_outside(tmp_path: Path) -> None:
    assert "AMP118" not in judge(tmp_path, lambda: train(inside=False)).coverage.fired
