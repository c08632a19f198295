from __future__ import annotations

import warnings
from pathlib import Path

import torch
import torch.nn.functional as F

from tests.diagnose.judging import classifier, half, judge, labelled, only, serious


def train(old: bool) -> None:
    warnings.simplefilter("ignore")
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(3):
        x, y = labelled()
        optimizer.zero_grad()
        context = torch.cpu.amp.autocast_mode.autocast(dtype=torch.bfloat16) if old else half(torch.bfloat16)
        with context:
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()


def test_a_note_with_the_new_spelling(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: train(old=True))
    assert serious(found) == []
    finding = only(found, "AMP119")
    assert 'torch.amp.autocast("cpu")' in finding.recommendation


def test_silent_on_the_new_spelling(tmp_path: Path) -> None:
    assert "AMP119" not in judge(tmp_path, lambda: train(old=False)).coverage.fired
