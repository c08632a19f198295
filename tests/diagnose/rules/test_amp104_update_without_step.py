from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F

from tests.diagnose.judging import classifier, half, judge, labelled, line_of, only, serious


def train(every_micro: bool) -> None:
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14)
    for i in range(8):
        x, y = labelled()
        with half():
            loss = F.cross_entropy(model(x), y) / 2
        scaler.scale(loss).backward()
        last = i % 2 == 1
        if last:
            scaler.step(optimizer)
            optimizer.zero_grad()
        if every_micro or last:
            scaler.update()


def test_update_in_every_micro_batch(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: train(every_micro=True), raises=True)
    assert serious(found) == ["AMP104"]
    finding = only(found, "AMP104")
    assert finding.where.line == line_of(train, "scaler.update(")
    assert "AssertionError" in finding.claim


def test_silent_when_update_follows_step(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: train(every_micro=False))) == []
