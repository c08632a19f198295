from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.support.recording import amp_training, batch, mlp, record, rows


def test_a_clip_of_scaled_gradients_says_so(tmp_path: Path) -> None:
    right = record(tmp_path / "a", lambda: amp_training(1, clip=True))
    wrong = record(tmp_path / "b", lambda: amp_training(1, clip=True, unscale=False))
    query = "SELECT scaled, value, \"limit\", n_params, dtype FROM calls WHERE call = 'clip_grad_norm_'"
    ok, bad = rows(right, query)[0], rows(wrong, query)[0]
    assert (ok["scaled"], bad["scaled"]) == ("unscaled", "scaled")
    assert ok["limit"] == bad["limit"] == 1.0
    assert ok["n_params"] == 4
    assert bad["value"] == pytest.approx(ok["value"] * 65536.0, rel=1e-3)


def test_a_generator_of_parameters_reaches_the_clip_whole(tmp_path: Path) -> None:
    model = mlp()

    def train() -> None:
        x, y = batch()
        (100 * nn.functional.cross_entropy(model(x), y)).backward()
        total = torch.nn.utils.clip_grad_norm_((p for p in model.parameters()), 1.0)
        assert total > 1.0

    record(tmp_path, train)
    clipped = torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm()
    assert clipped == pytest.approx(1.0, rel=1e-4)


def test_an_empty_generator_still_warns(tmp_path: Path) -> None:
    def train() -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            nothing: list[torch.Tensor] = []
            torch.nn.utils.clip_grad_norm_((p for p in nothing), 1.0)
        assert any("empty generator" in str(w.message) for w in caught)

    record(tmp_path, train)


def test_scheduler_steps_and_the_one_at_construction(tmp_path: Path) -> None:
    def train() -> None:
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        x, y = batch()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        scheduler.step()

    calls = rows(
        record(tmp_path, train), "SELECT object, target, value, detail FROM calls WHERE call='scheduler.step'"
    )
    assert [(r["object"], r["target"], r["value"], r["detail"]) for r in calls] == [
        ("StepLR#0", "SGD#0", 1.0, "initial"),
        ("StepLR#0", "SGD#0", 0.5, None),
    ]


def test_autocast_contexts_and_how_often_they_are_entered(tmp_path: Path) -> None:
    def train() -> None:
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        x, y = batch()
        for _ in range(20):
            with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False):
                out = model(x)
        nn.functional.cross_entropy(out, y).backward()
        optimizer.step()

    trace = record(tmp_path, train)
    entered = rows(trace, "SELECT * FROM calls WHERE call='autocast.enter' ORDER BY seq")
    assert {(r["target"], r["dtype"], r["enabled"]) for r in entered[:8]} == {("cpu", "bfloat16", True)}
    assert {r["detail"] for r in entered[:8]} == {"cache_off"}
    assert [(r["detail"], r["value"]) for r in entered[8:]] == [("repeated", 20.0)]


def test_deprecated_spellings_are_noted(tmp_path: Path) -> None:
    def train() -> None:
        amp_training(1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.cpu.amp.autocast_mode.autocast(dtype=torch.bfloat16)
            torch.cpu.amp.grad_scaler.GradScaler()

    found = rows(record(tmp_path, train), "SELECT object FROM calls WHERE call='deprecated' ORDER BY seq")
    assert [r["object"].rpartition(".")[2] for r in found] == ["autocast", "GradScaler"]


def test_state_dicts_that_are_loaded(tmp_path: Path) -> None:
    def train() -> None:
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        scaler = torch.amp.GradScaler("cpu")
        model.load_state_dict(model.state_dict())
        optimizer.load_state_dict(optimizer.state_dict())
        scaler.load_state_dict(scaler.state_dict())
        amp_training(1)

    calls = [
        r["call"]
        for r in rows(
            record(tmp_path, train), "SELECT call FROM calls WHERE call LIKE '%load_state%' ORDER BY seq"
        )
    ]
    assert calls == ["model.load_state_dict", "optimizer.load_state_dict", "scaler.load_state_dict"]


def test_torch_is_as_it_was_afterwards(tmp_path: Path) -> None:
    names = [
        (torch.nn.utils, "clip_grad_norm_"),
        (torch.nn.utils.clip_grad, "clip_grad_norm_"),
        (torch.amp.GradScaler, "step"),
        (torch.amp.autocast_mode.autocast, "__enter__"),
        (torch.autograd, "_engine_run_backward"),
        (torch.optim.Optimizer, "__init__"),
    ]
    before = [getattr(owner, name) for owner, name in names]
    record(tmp_path, lambda: amp_training(1))
    assert [getattr(owner, name) for owner, name in names] == before
