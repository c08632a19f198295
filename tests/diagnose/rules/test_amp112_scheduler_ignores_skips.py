from __future__ import annotations

import warnings
from pathlib import Path

import torch
import torch.nn.functional as F

from tests.diagnose.judging import classifier, half, judge, labelled, line_of, only, serious


def train(guarded: bool, per_epoch: bool = False, init_scale: float = 2.0**22, steps: int = 30) -> None:
    warnings.simplefilter("ignore")
    model = classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 8))
    scaler = torch.amp.GradScaler("cpu", init_scale=init_scale)
    for step in range(steps):
        x, y = labelled()
        optimizer.zero_grad()
        with half():
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        if guarded and scaler.get_scale() < before:
            continue
        if not per_epoch or step % 10 == 9:
            schedule.step()


def test_schedule_runs_through_the_leading_skips(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: train(guarded=False))
    assert serious(found)[0] == "AMP112"
    finding = only(found, "AMP112")
    assert finding.where.line == line_of(train, "schedule.step()")
    assert "LambdaLR#0" in finding.claim


def test_silent_when_the_schedule_waits(tmp_path: Path) -> None:
    assert "AMP112" not in judge(tmp_path, lambda: train(guarded=True)).coverage.fired


def test_silent_on_a_schedule_per_epoch(tmp_path: Path) -> None:
    assert "AMP112" not in judge(tmp_path, lambda: train(guarded=False, per_epoch=True)).coverage.fired


def test_silent_on_two_lost_steps(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: train(guarded=False, init_scale=2.0**17, steps=60))
    assert serious(found) == []
