from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F

from tests.diagnose.judging import classifier, half, judge, labelled, only, serious


def train(growth_interval: int, steps: int = 60) -> None:
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**17, growth_interval=growth_interval)
    for _ in range(steps):
        x, y = labelled()
        optimizer.zero_grad()
        with half():
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def test_sawtooth(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: train(2))
    assert serious(found) == ["AMP202"]
    finding = only(found, "AMP202")
    assert finding.change.set == {"scaler.growth_interval": "2000"}
    assert any("skipped" in s for s in finding.symptoms)


def test_silent_with_the_default_interval(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: train(2000))) == []


def test_silent_on_one_skip_per_growth_now_and_then(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: train(60, steps=200))) == []
