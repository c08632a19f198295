from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.support.recording import batch, mlp, record, rows


def training(edit: Callable[[nn.Module, torch.amp.GradScaler], None]) -> Callable[[], None]:
    def train() -> None:
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        for _ in range(2):
            x, y = batch()
            optimizer.zero_grad()
            scaler.scale(nn.functional.cross_entropy(model(x), y)).backward()
            edit(model, scaler)
            scaler.step(optimizer)
            scaler.update()

    return train


def divide(model: nn.Module, scaler: torch.amp.GradScaler) -> None:
    for param in model.parameters():
        assert param.grad is not None
        param.grad.div_(scaler.get_scale())


def divide_data(model: nn.Module, scaler: torch.amp.GradScaler) -> None:
    for param in model.parameters():
        assert param.grad is not None
        param.grad.data /= scaler.get_scale()


def replace(model: nn.Module, scaler: torch.amp.GradScaler) -> None:
    for param in model.parameters():
        assert param.grad is not None
        param.grad = param.grad / scaler.get_scale()


def look_only(model: nn.Module, scaler: torch.amp.GradScaler) -> None:
    for param in model.parameters():
        assert param.grad is not None
        param.grad.norm().item()


def edits(trace: Any) -> list[dict[str, Any]]:
    return rows(trace, "SELECT value, n_params, scaled FROM calls WHERE call='grad_edit' ORDER BY seq")


@pytest.mark.parametrize("edit", [divide, divide_data, replace])
def test_a_division_by_hand_is_seen_with_its_factor(tmp_path: Path, edit: Any) -> None:
    found = edits(record(tmp_path, training(edit)))
    assert len(found) == 2
    assert found[0]["n_params"] == 4
    assert found[0]["value"] == pytest.approx(1 / 1024.0, rel=1e-6)
    assert found[0]["scaled"] == "scaled"


def test_looking_is_no_edit(tmp_path: Path) -> None:
    assert edits(record(tmp_path, training(look_only))) == []


def test_accumulation_is_no_edit(tmp_path: Path) -> None:
    def train() -> None:
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            x, y = batch()
            nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    assert edits(record(tmp_path, train)) == []
