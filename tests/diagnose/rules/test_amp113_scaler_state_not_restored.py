from __future__ import annotations

import io
from pathlib import Path

import torch
import torch.nn.functional as F

from tests.diagnose.judging import classifier, half, judge, labelled, line_of, only, serious


def train(restore: bool, jobs: int = 3, steps: int = 14) -> None:
    blob: io.BytesIO | None = None
    for _ in range(jobs):
        model = classifier()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        scaler = torch.amp.GradScaler("cpu")
        if blob is not None:
            blob.seek(0)
            state = torch.load(blob)
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            if restore:
                scaler.load_state_dict(state["scaler"])
        for _ in range(steps):
            x, y = labelled(256)
            optimizer.zero_grad()
            with half():
                loss = F.cross_entropy(4 * model(x), y, reduction="sum")
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        blob = io.BytesIO()
        torch.save(
            {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "scaler": scaler.state_dict(),
            },
            blob,
        )


def fine_tune() -> None:
    """Weights are loaded and the optimizer is new: no resume, so there is no scaler state to restore."""
    model = classifier()
    model.load_state_dict(classifier().state_dict())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**19)
    for _ in range(30):
        x, y = labelled()
        optimizer.zero_grad()
        with half():
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def test_every_restart_searches_for_the_scale_again(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: train(restore=False))
    assert serious(found) == ["AMP113"]
    finding = only(found, "AMP113")
    assert "After 2 restarts" in finding.claim
    assert finding.where.line == line_of(train, "optimizer.load_state_dict")


def test_silent_when_the_scaler_is_restored(tmp_path: Path) -> None:
    assert "AMP113" not in judge(tmp_path, lambda: train(restore=True)).coverage.fired


def test_silent_on_fine_tuning(tmp_path: Path) -> None:
    assert "AMP113" not in judge(tmp_path, fine_tune).coverage.fired
