from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F

from ampscope.diagnose import Diagnosis
from tests.diagnose.judging import classifier, judge, labelled, only, serious


def train(path: Path, outlier: float, steps: int = 5) -> Diagnosis:
    """Plain float32 training; one weight of the middle layer is as large as `outlier`."""

    def run() -> None:
        model = classifier()
        with torch.no_grad():
            model[2].weight[0, 0] = outlier  # type: ignore[operator]
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        for _ in range(steps):
            x, y = labelled()
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()

    return judge(path, run, every=1)


def test_an_ordinary_run_fits(tmp_path: Path) -> None:
    found = train(tmp_path, outlier=0.1)
    assert serious(found) == []
    finding = only(found, "AMP802")
    assert "at most" in finding.claim
    assert all(e.basis == "predicted" for e in finding.evidence)


def test_a_layer_with_an_outlier_is_named(tmp_path: Path) -> None:
    finding = only(train(tmp_path, outlier=1e6), "AMP802")
    assert "layer" in finding.claim
    assert "2" in finding.claim.split("layer", 1)[1]
    assert finding.where.module is not None


def test_too_few_samples(tmp_path: Path) -> None:
    found = train(tmp_path, outlier=0.1, steps=1)
    assert "AMP802" in [n.code for n in found.coverage.not_measurable]
