from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.diagnose.judging import half, judge, line_of, serious


def dice(prob: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    mask = mask.type_as(prob)
    inter = (prob * mask).sum()
    return 1 - (2 * inter + 1) / (prob.sum() + mask.sum() + 1)


def segmentation(side: int, as_float: bool = False) -> None:
    model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)
    for _ in range(6):
        image = torch.rand(side, side, 3)
        mask = image[..., 0] > 0.4
        optimizer.zero_grad()
        with half():
            prob = torch.sigmoid(model(image)).squeeze(-1)
            loss = dice(prob.float() if as_float else prob, mask)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def metric_only() -> None:
    """A sum that overflows and is only printed."""
    model = nn.Linear(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    for _ in range(6):
        x = torch.randn(64, 16)
        optimizer.zero_grad()
        with half():
            out = model(x)
            torch.full((4096,), 60.0, dtype=torch.float16).sum()
            loss = F.cross_entropy(out, x[:, :4].argmax(1))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def test_sum_over_many_pixels(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: segmentation(512))
    assert serious(found)[0] == "AMP403"
    finding = found.findings[0]
    assert finding.where.op == "aten::sum"
    assert finding.where.line in (line_of(dice, "inter ="), line_of(dice, "return"))
    assert "65504" in finding.claim
    assert set(serious(found)) == {"AMP403"}


@pytest.mark.parametrize(("side", "as_float"), [(64, False), (512, True)])
def test_silent_on_small_images_and_in_float32(tmp_path: Path, side: int, as_float: bool) -> None:
    assert serious(judge(tmp_path, lambda: segmentation(side, as_float))) == []


def test_silent_on_an_overflow_that_reaches_nothing(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, metric_only)) == []
