from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.diagnose.judging import half, judge, labelled, line_of, only, serious


def train(how: str) -> None:
    backbone, head = nn.Linear(16, 32), nn.Linear(32, 4)
    optimizer = torch.optim.SGD([*backbone.parameters(), *head.parameters()], lr=0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    for _ in range(4):
        x, y = labelled()
        optimizer.zero_grad()
        with half():
            features = backbone(x)
            inside = head(features) if how == "inside" else None
        logits = inside if inside is not None else head(features.float() if how == "float" else features)
        scaler.scale(F.cross_entropy(logits.float(), y)).backward()
        scaler.step(optimizer)
        scaler.update()


def never_autocast() -> None:
    nn.Linear(16, 4)(torch.randn(4, 16).half())


def test_half_features_reach_a_float32_layer(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: train("outside"), raises=True)
    assert serious(found) == ["AMP124"]
    finding = only(found, "AMP124")
    assert finding.where.line == line_of(train, "logits = inside")
    assert "outside the autocast context" in finding.claim


@pytest.mark.parametrize("how", ["inside", "float"])
def test_silent_when_the_consumer_is_inside_or_gets_float32(tmp_path: Path, how: str) -> None:
    assert serious(judge(tmp_path, lambda: train(how))) == []
