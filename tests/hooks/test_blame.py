from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from tests.support.recording import batch, mlp, record, rows


def test_a_stale_gradient_is_told_from_a_fresh_one(tmp_path: Path) -> None:
    def train() -> None:
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        for bad in (True, False):
            x, y = batch()
            loss = nn.functional.cross_entropy(model(x), y)
            scaler.scale(loss * float("inf") if bad else loss).backward()
            scaler.step(optimizer)
            scaler.update()

    trace = record(tmp_path, train)
    stale = rows(
        trace, "SELECT step, stale FROM nonfinite WHERE role='grad' AND name='0.weight' ORDER BY step"
    )
    assert stale == [{"step": 0, "stale": False}, {"step": 1, "stale": True}]


@pytest.mark.parametrize("order", ["forward first", "accumulation"])
def test_a_gradient_is_stale_when_backward_adds_to_it(order: str, tmp_path: Path) -> None:
    """Clearing between the forward and the backward is in time; clearing after the second skip is not."""

    def train() -> None:
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        for bad in (True, True, order == "forward first", False):
            x, y = batch()
            loss = nn.functional.cross_entropy(model(x), y)
            if order == "forward first":
                optimizer.zero_grad()
            scaler.scale(loss * float("inf") if bad else loss).backward()
            if order == "accumulation":
                x, y = batch()
                scaler.scale(nn.functional.cross_entropy(model(x), y)).backward()
            scaler.step(optimizer)
            scaler.update()
            if order == "accumulation" and not bad:
                optimizer.zero_grad()

    found = rows(
        record(tmp_path, train), "SELECT step, stale FROM nonfinite WHERE name='0.weight' ORDER BY 1"
    )
    stale = [r["stale"] for r in found]
    assert stale == ([False, False, False] if order == "forward first" else [False, True, True])


def test_a_gradient_waits_while_the_backward_of_another_model_runs(tmp_path: Path) -> None:
    def train() -> None:
        loud, calm = mlp(0), mlp(1)
        optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (loud, calm)]
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        for _ in range(3):
            for model, optimizer in zip((loud, calm), optimizers, strict=True):
                x, y = batch()
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(x), y)
                scaler.scale(loss * float("inf") if model is loud else loss).backward()
                scaler.step(optimizer)
            scaler.update()

    found = rows(record(tmp_path, train), "SELECT stale FROM nonfinite WHERE name LIKE '%0.weight'")
    assert [r["stale"] for r in found] == [False, False, False]


def test_only_the_parameters_that_were_hit_are_named(tmp_path: Path) -> None:
    def train() -> None:
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        x, y = batch()
        scaler.scale(nn.functional.cross_entropy(model(x), y)).backward()
        last = model[2]
        assert isinstance(last, nn.Linear)
        assert last.weight.grad is not None
        last.weight.grad[0, 0] = float("nan")
        last.weight.grad[0, 1] = float("-inf")
        scaler.step(optimizer)
        scaler.update()

    found = rows(record(tmp_path, train), "SELECT name, nan, posinf, neginf, numel FROM nonfinite")
    assert found == [{"name": "2.weight", "nan": 1, "posinf": 0, "neginf": 1, "numel": 48}]


def test_bad_weights_are_found_when_a_forward_goes_bad(tmp_path: Path) -> None:
    def train() -> None:
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        first = model[0]
        assert isinstance(first, nn.Linear)
        for step in range(2):
            x, y = batch()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            if step == 0:
                with torch.no_grad():
                    first.weight[0, 0] = float("nan")

    found = rows(record(tmp_path, train), "SELECT DISTINCT step, name FROM nonfinite WHERE role='weight'")
    assert {"step": 1, "name": "0.weight"} in found
    assert all(r["step"] == 1 for r in found)
