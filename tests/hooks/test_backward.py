from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from ampscope.hooks.backward import Backward
from tests.support.recording import batch, mlp, record, rows


def test_each_entry_point_is_seen_once(tmp_path: Path) -> None:
    def train() -> None:
        model = mlp()
        x, y = batch()
        nn.functional.cross_entropy(model(x), y).backward()
        torch.autograd.backward(nn.functional.cross_entropy(model(x), y))
        torch.autograd.grad(nn.functional.cross_entropy(model(x), y), list(model.parameters()))

    trace = record(tmp_path, train)
    calls = rows(
        trace, "SELECT call, n_params FROM calls WHERE call IN ('backward', 'autograd.grad') ORDER BY seq"
    )
    assert [r["call"] for r in calls] == ["backward", "backward", "autograd.grad"]
    assert [r["n_params"] for r in calls] == [4, 4, None]


def test_reentrant_checkpoint_is_one_backward(tmp_path: Path) -> None:
    def train() -> None:
        model = mlp()
        x, y = batch()
        x.requires_grad_()
        nn.functional.cross_entropy(checkpoint(model, x, use_reentrant=True), y).backward()

    trace = record(tmp_path, train)
    assert len(rows(trace, "SELECT seq FROM calls WHERE call='backward'")) == 1


def test_a_scaled_and_an_unscaled_loss_are_told_apart(tmp_path: Path) -> None:
    def train() -> None:
        main, other = mlp(), mlp(1)
        optimizer = torch.optim.SGD([*main.parameters(), *other.parameters()], lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
        x, y = batch()
        scaler.scale(nn.functional.cross_entropy(main(x), y)).backward()
        nn.functional.cross_entropy(other(x), y).backward()
        scaler.step(optimizer)
        scaler.update()

    trace = record(tmp_path, train)
    calls = rows(trace, "SELECT scaled, params, value FROM calls WHERE call='backward' ORDER BY seq")
    assert [r["scaled"] for r in calls] == ["scaled", "unscaled"]
    assert sorted(calls[0]["params"]) == ["0.bias", "0.weight", "2.bias", "2.weight"]
    assert all(name.startswith("Sequential#1.") for name in calls[1]["params"])
    assert 0.5 < calls[0]["value"] < 3.0, "the loss as it was before scaling"
    assert rows(trace, "SELECT scaled FROM calls WHERE call='scaler.step'") == [{"scaled": "mixed"}]


def test_the_users_line_is_noted(tmp_path: Path) -> None:
    def train() -> None:
        model = mlp()
        x, y = batch()
        nn.functional.cross_entropy(model(x), y).backward()

    call = rows(record(tmp_path, train), "SELECT file, line, function FROM calls WHERE call='backward'")[0]
    assert call["file"].endswith("test_backward.py")
    assert call["line"] == train.__code__.co_firstlineno + 3


def test_a_backward_that_raises_is_noted_and_passes_through(tmp_path: Path) -> None:
    caught = []

    def train() -> None:
        model = mlp()
        x, y = batch()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        try:
            loss.backward()
        except RuntimeError as error:
            caught.append(error)

    trace = record(tmp_path, train)
    assert len(caught) == 1
    errors = rows(trace, "SELECT error FROM calls WHERE call='backward' ORDER BY seq")
    assert [r["error"] for r in errors] == [None, "RuntimeError"]


def test_parameters_note_nothing_once_nobody_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Any, *args: Any) -> None:
        raise RuntimeError("broken")

    def train() -> None:
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        for _ in range(3):
            model(batch()[0]).sum().backward()
            optimizer.step()
        assert not any(p._post_accumulate_grad_hooks for p in model.parameters())

    monkeypatch.setattr(Backward, "_after", broken)
    trace = record(tmp_path, train, strict=False)
    assert rows(trace, "SELECT subject FROM events WHERE event = 'collector_error'") == [
        {"subject": "backward"}
    ]
    assert rows(trace, "SELECT count(*) AS n FROM steps WHERE outcome = 'stepped'") == [{"n": 3}]
