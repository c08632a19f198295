from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from ampscope.diagnose import Diagnosis
from tests.diagnose.judging import judge, labelled, only, serious


def train(path: Path, spread: float) -> Diagnosis:
    """A linear model whose weights and outputs span `spread` orders of magnitude."""

    def run() -> None:
        model = nn.Linear(16, 4, bias=False)
        with torch.no_grad():
            model.weight.copy_(10 ** (-spread * torch.rand(4, 16)))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
        for _ in range(4):
            x, y = labelled()
            optimizer.zero_grad()
            F.cross_entropy(model(x.abs() + 1.0), y).backward()
            optimizer.step()

    return judge(path, run, every=1)


def test_a_layer_of_narrow_range_fits(tmp_path: Path) -> None:
    found = train(tmp_path, spread=0.5)
    assert serious(found) == []
    finding = only(found, "AMP803")
    assert "1 of 1 layers fit" in finding.claim
    assert "open layers" not in finding.recommendation


def test_a_wide_range_needs_the_values(tmp_path: Path) -> None:
    found = train(tmp_path, spread=4.0)
    why = next(n.why for n in found.coverage.not_measurable if n.code == "AMP803")
    assert "needs the values" in why
