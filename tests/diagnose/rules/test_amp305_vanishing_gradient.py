from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.diagnose.judging import codes, half, judge, labelled, only, serious


def train(layers: int, dtype: torch.dtype, lr: float = 0.1) -> None:
    """A stack of sigmoid layers: each passes on a quarter of the gradient at most."""
    stack = [m for _ in range(layers) for m in (nn.Linear(16, 16), nn.Sigmoid())]
    model = nn.Sequential(*stack, nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    scaler = torch.amp.GradScaler("cpu", enabled=dtype == torch.float16)
    for _ in range(6):
        x, y = labelled()
        optimizer.zero_grad()
        with half(dtype):
            loss = F.cross_entropy(model(x).float(), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_vanishing_by_depth(tmp_path: Path, dtype: torch.dtype) -> None:
    found = judge(tmp_path, lambda: train(16, dtype))
    assert serious(found) == ["AMP305"]
    assert "Precision is innocent" in only(found, "AMP305").claim


def test_silent_on_a_shallow_network(tmp_path: Path) -> None:
    assert "AMP305" not in codes(judge(tmp_path, lambda: train(2, torch.float16)))


def test_silent_when_all_gradients_are_small(tmp_path: Path) -> None:
    """Converged: small everywhere, but of the same size in all layers."""

    def converged() -> None:
        model = nn.Sequential(
            *[m for _ in range(6) for m in (nn.Linear(16, 16), nn.ReLU())], nn.Linear(16, 4)
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(6):
            x, y = labelled()
            optimizer.zero_grad()
            with half(torch.bfloat16):
                loss = F.cross_entropy(model(x).float(), y) * 1e-12
            loss.backward()
            optimizer.step()

    assert "AMP305" not in codes(judge(tmp_path, converged))
