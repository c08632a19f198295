from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F

from tests.diagnose.judging import classifier, codes, judge, labelled


def train(peak: float) -> None:
    """float32, a learning rate that jumps for three steps in mid-training."""
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(60):
        optimizer.param_groups[0]["lr"] = peak if 30 <= step < 33 else 0.05
        x, y = labelled(256)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def test_a_jump_with_growing_logits_is_named(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: train(peak=12.0), every=1)
    assert "AMP415" in codes(found)


def test_a_steady_rate_is_clean(tmp_path: Path) -> None:
    assert codes(judge(tmp_path, lambda: train(peak=0.05), every=1)) == []
