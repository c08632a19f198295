from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.diagnose.judging import half, judge, labelled, line_of, only, serious


def average(rows: torch.Tensor, eps: float) -> torch.Tensor:
    """Mean of the rows that are not zero, by a count that may be zero."""
    count = (rows.abs().sum(-1, keepdim=True) > 0).to(rows.dtype)
    return rows.sum(1) / (count.sum(1) + eps)


def bags(eps: float, dtype: torch.dtype = torch.float16, empty: bool = True) -> None:
    model, head = nn.Linear(16, 8, bias=False), nn.Linear(8, 4)
    optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()], lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**7, enabled=dtype == torch.float16)
    for _ in range(6):
        x = torch.randn(12, 5, 16)
        if empty:
            x[2] = 0.0
        optimizer.zero_grad()
        with half(dtype):
            out = head(average(model(x), eps))
        loss = F.cross_entropy(out.float(), x[:, 0, :4].argmax(1))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def certain(bound: float) -> None:
    """log(1 - p) of a probability that the clamp was to keep below one."""
    model = nn.Linear(16, 1)
    with torch.no_grad():
        model.weight.mul_(40.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**7)
    for _ in range(6):
        x, _ = labelled()
        y = (x[:, :1] > 0).half()
        optimizer.zero_grad()
        with half():
            p = torch.sigmoid(model(x)).clamp(bound, 1 - bound)
            loss = -(y * torch.log(p) + (1 - y) * torch.log(1 - p)).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def root(eps: float) -> None:
    """The safeguard is in the forward, what fails without it is the backward."""
    model = nn.Linear(16, 8, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**7)
    for _ in range(6):
        x, _ = labelled()
        x[1] = 0.0
        optimizer.zero_grad()
        with half():
            loss = torch.sqrt(model(x).square().sum(-1) + eps).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def test_division_by_an_empty_count(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: bags(1e-8))
    assert serious(found) == ["AMP405"]
    finding = only(found, "AMP405")
    assert finding.where.line == line_of(average, "return rows.sum(1)")
    assert "1e-08" in finding.claim


def test_a_bound_that_is_one(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: certain(1e-6))
    assert serious(found) == ["AMP405"]


def test_a_root_whose_backward_fails(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: root(1e-9))
    assert serious(found) == ["AMP405"]
    assert "backward" in only(found, "AMP405").claim


@pytest.mark.parametrize(
    ("eps", "dtype", "empty"),
    [(1e-3, torch.float16, True), (1e-8, torch.bfloat16, True), (1e-8, torch.float16, False)],
)
def test_silent_when_it_holds_or_is_not_needed(
    tmp_path: Path, eps: float, dtype: torch.dtype, empty: bool
) -> None:
    assert serious(judge(tmp_path, lambda: bags(eps, dtype, empty))) == []


def test_silent_on_bounds_that_half_holds(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: certain(1e-3))) == []
    assert serious(judge(tmp_path / "root", lambda: root(1e-4))) == []
