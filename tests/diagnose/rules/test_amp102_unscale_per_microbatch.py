from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from tests.diagnose.judging import classifier, half, judge, labelled, line_of, only, serious

ACCUMULATE = 3


def train(every_micro: bool, steps: int = 4) -> None:
    model = classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14)
    optimizer.zero_grad()
    for i in range(steps * ACCUMULATE):
        x, y = labelled()
        with half():
            loss = F.cross_entropy(model(x), y) / ACCUMULATE
        scaler.scale(loss).backward()
        last = (i + 1) % ACCUMULATE == 0
        if every_micro or last:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if last:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()


def twice_in_one_step() -> None:
    model = classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14)
    for _ in range(2):
        x, y = labelled()
        optimizer.zero_grad()
        with half():
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        scaler.unscale_(optimizer)


def test_unscale_in_every_micro_batch(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: train(every_micro=True), raises=True)
    assert serious(found) == ["AMP102"]
    finding = only(found, "AMP102")
    assert finding.where.line == line_of(train, "scaler.unscale_(")
    assert "1 more backward" in finding.claim
    assert any("RuntimeError" in s for s in finding.symptoms)


def test_unscale_twice_in_one_step(tmp_path: Path) -> None:
    found = judge(tmp_path, twice_in_one_step, raises=True)
    assert serious(found) == ["AMP102"]
    assert "no backward in between" in only(found, "AMP102").claim


def test_silent_when_only_the_stepping_micro_batch_unscales(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: train(every_micro=False))) == []
