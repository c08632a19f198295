from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F

from tests.diagnose.judging import classifier, half, judge, labelled, line_of, only, serious


def train(steps: int, init_scale: float = 2.0**16) -> None:
    model = classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=init_scale)
    for _ in range(steps):
        x, y = labelled(256)
        optimizer.zero_grad()
        with half():
            loss = F.cross_entropy(4 * model(x), y, reduction="sum")
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def test_a_warning_when_the_search_takes_much_of_the_run(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: train(20))
    assert serious(found) == ["AMP204"]
    finding = only(found, "AMP204")
    assert finding.where.line == line_of(train, "GradScaler(")


def test_a_note_when_it_does_not(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: train(80))
    assert serious(found) == []
    assert only(found, "AMP204").severity == "info"


def test_silent_at_the_advised_scale(tmp_path: Path) -> None:
    advised = float(only(judge(tmp_path / "a", lambda: train(20)), "AMP204").change.set["scaler.init_scale"])
    assert "AMP204" not in judge(tmp_path / "b", lambda: train(20, advised)).coverage.fired


def test_a_start_beyond_any_usual_scale_however_long_the_search(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: train(90, init_scale=2.0**50))
    assert serious(found) == ["AMP204"]
    assert float(only(found, "AMP204").change.set["scaler.init_scale"]) <= 2.0**20
