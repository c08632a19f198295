from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.diagnose.judging import half, judge, labelled, line_of, only, serious


def train(where: str, dtype: torch.dtype = torch.float16, from_step: int = 3) -> None:
    """Missing values in the inputs or the targets of later batches."""
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**7, enabled=dtype == torch.float16)
    inputs, targets = torch.randn(12, 32, 16), torch.randn(12, 32, 2)
    if where == "input":
        inputs[from_step:, 4, 1] = float("nan")
    elif where == "target":
        targets[from_step:, 4, 1] = float("nan")
    for step in range(8):
        optimizer.zero_grad()
        with half(dtype):
            out = model(inputs[step])
        loss = F.mse_loss(out.float(), targets[step])
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def one_bad_target() -> None:
    """A single missing target, in a step of which no census and no watch saw the forward."""
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**7)
    for step in range(10):
        x, y = torch.randn(32, 16), torch.randn(32, 2)
        if step == 5:
            y[4, 1] = float("nan")
        optimizer.zero_grad()
        with half():
            out = model(x)
        scaler.scale(F.mse_loss(out.float(), y)).backward()
        scaler.step(optimizer)
        scaler.update()


def without_modules() -> None:
    first, second = torch.randn(16, 32).requires_grad_(), torch.randn(32, 4).requires_grad_()
    optimizer = torch.optim.SGD([first, second], lr=1e-3)
    for step in range(6):
        x, y = labelled()
        if step >= 2:
            x[5, 5] = float("inf")
        optimizer.zero_grad()
        with half(torch.bfloat16):
            out = torch.tanh(x @ first) @ second
        F.cross_entropy(out.float(), y).backward()
        optimizer.step()


def masked_by_index() -> None:
    """Missing targets that are left out are no fault."""
    model = nn.Linear(16, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**7)
    for _ in range(4):
        x, _ = labelled()
        target = x[:, :2].clone()
        target[::5, 1] = float("nan")
        known = torch.isfinite(target)
        optimizer.zero_grad()
        with half():
            out = model(x)
        loss = (out.float() - target)[known].square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_missing_values_in_the_input(tmp_path: Path, dtype: torch.dtype) -> None:
    found = judge(tmp_path, lambda: train("input", dtype))
    assert serious(found) == ["AMP414"]
    finding = only(found, "AMP414")
    assert finding.where.steps is not None
    assert finding.where.steps[0] == 3
    assert "not the precision" in finding.claim


def test_missing_values_in_the_target(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: train("target"))
    assert serious(found) == ["AMP414"]
    assert only(found, "AMP414").where.line == line_of(train, "targets[step])")


def test_one_missing_target(tmp_path: Path) -> None:
    found = judge(tmp_path, one_bad_target)
    assert serious(found) == ["AMP414"]
    finding = only(found, "AMP414")
    assert finding.where.steps == (5, 5)
    assert finding.where.module is None
    assert "beside the model's output holds NaN in 1 of 64 elements" in finding.claim


def test_a_model_without_modules(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, without_modules))[0] == "AMP414"


def test_silent_on_clean_and_on_masked_data(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: train("nowhere"))) == []
    assert serious(judge(tmp_path / "masked", masked_by_index)) == []
