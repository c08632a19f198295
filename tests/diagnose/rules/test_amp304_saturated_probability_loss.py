from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.diagnose.judging import half, judge, labelled, only, serious


def train(kind: str, dtype: torch.dtype = torch.float16) -> None:
    """A confident classifier with some wrong labels: its logits are far out on both sides."""
    model = nn.Linear(16, 4)
    with torch.no_grad():
        model.weight.mul_(60.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**7, enabled=dtype == torch.float16)
    for _ in range(10):
        x, y = labelled()
        hot = F.one_hot(y, 4).float()
        optimizer.zero_grad()
        with half(dtype):
            logits = model(x)
            loss = LOSSES[kind](logits, hot, y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def bce(logits: torch.Tensor, hot: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.binary_cross_entropy(torch.sigmoid(logits), hot)


def log_of_sigmoid(logits: torch.Tensor, hot: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    p = torch.sigmoid(logits)
    return -(hot.to(p.dtype) * torch.log(p) + (1 - hot).to(p.dtype) * torch.log(1 - p)).mean()


def log_of_softmax(logits: torch.Tensor, hot: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.nll_loss(torch.log(logits.softmax(-1)), y)


def with_logits(logits: torch.Tensor, hot: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.binary_cross_entropy_with_logits(logits.float(), hot)


def cross_entropy(logits: torch.Tensor, hot: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.float(), y)


LOSSES = {f.__name__: f for f in (bce, log_of_sigmoid, log_of_softmax, with_logits, cross_entropy)}


@pytest.mark.parametrize("kind", ["bce", "log_of_sigmoid", "log_of_softmax"])
def test_saturated(tmp_path: Path, kind: str) -> None:
    found = judge(tmp_path, lambda: train(kind))
    assert serious(found)[0] == "AMP304"
    assert set(serious(found)) == {"AMP304"}
    assert "exactly 0 or 1" in only(found, "AMP304").claim


@pytest.mark.parametrize("kind", ["with_logits", "cross_entropy"])
def test_silent_on_losses_from_logits(tmp_path: Path, kind: str) -> None:
    assert serious(judge(tmp_path, lambda: train(kind))) == []
