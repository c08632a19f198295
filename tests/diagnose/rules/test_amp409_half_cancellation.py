from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.diagnose.judging import half, judge, line_of, only, serious


def expanded(h: torch.Tensor) -> torch.Tensor:
    square = h.square().sum(1)
    i, j = torch.triu_indices(len(h), len(h), 1)
    return (square[i] + square[j] - 2 * (h @ h.t())[i, j]).sqrt()


def direct(h: torch.Tensor) -> torch.Tensor:
    i, j = torch.triu_indices(len(h), len(h), 1)
    return ((h[i].float() - h[j].float()).square().sum(1) + 1e-8).sqrt()


def moments(h: torch.Tensor) -> torch.Tensor:
    mean = h.mean(-1, keepdim=True)
    return (h - mean) / ((h * h).mean(-1, keepdim=True) - mean * mean).sqrt()


FORMULAS = {f.__name__: f for f in (expanded, direct, moments)}


def train(
    formula: str, dtype: torch.dtype = torch.float16, spread: float = 0.01, offset: float = 4.0
) -> None:
    """Almost equal vectors, far from the origin."""
    model = nn.Linear(16, 32)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**7, enabled=dtype == torch.float16)
    for _ in range(5):
        x = (
            offset
            + torch.randn(1, 16) * (0.0 if formula == "moments" else 1.0)
            + spread * torch.randn(12, 16)
        )
        optimizer.zero_grad()
        with half(dtype):
            h = model(x)
            if formula == "moments":
                h = h * 0.001 + offset
            loss = F.mse_loss(FORMULAS[formula](h).float(), torch.tensor(1.0))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize(
    ("formula", "dtype"),
    [("expanded", torch.float16), ("expanded", torch.bfloat16), ("moments", torch.float16)],
)
def test_rounding_leaves_nothing(tmp_path: Path, formula: str, dtype: torch.dtype) -> None:
    found = judge(tmp_path, lambda: train(formula, dtype))
    assert serious(found)[0] == "AMP409"
    finding = only(found, "AMP409")
    assert finding.where.line == line_of(FORMULAS[formula], ".sqrt()")


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize(("formula", "spread"), [("direct", 0.01), ("expanded", 3.0)])
def test_silent_on_the_direct_formula_and_on_distant_vectors(
    tmp_path: Path, formula: str, spread: float
) -> None:
    assert serious(judge(tmp_path, lambda: train(formula, spread=spread, offset=0.0))) == []
