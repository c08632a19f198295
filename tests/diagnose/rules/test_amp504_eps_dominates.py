from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F

from ampscope.diagnose import Diagnosis
from tests.diagnose.judging import classifier, judge, labelled, only, serious


def train(path: Path, factor: float, eps: float = 1e-8, steps: int = 10, frozen: bool = False) -> Diagnosis:
    def run() -> None:
        model = classifier()
        model[0].requires_grad_(not frozen)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, eps=eps)
        for _ in range(steps):
            x, y = labelled()
            optimizer.zero_grad()
            (factor * F.cross_entropy(model(x), y)).backward()
            optimizer.step()

    return judge(path, run, every=2)


def test_gradients_far_below_eps(tmp_path: Path) -> None:
    found = train(tmp_path, 1e-9)
    assert serious(found) == ["AMP504"]
    finding = only(found, "AMP504")
    assert "1e-08" in finding.claim
    assert any("AMP506" in s for s in finding.symptoms)


def test_silent_at_ordinary_gradients_and_with_frozen_parts(tmp_path: Path) -> None:
    assert serious(train(tmp_path, 1.0, frozen=True)) == []


def test_an_eps_that_is_large_on_purpose_is_left_alone(tmp_path: Path) -> None:
    assert serious(train(tmp_path, 1e-2, eps=0.1)) == []
