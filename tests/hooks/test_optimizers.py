from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.support.recording import amp_training, batch, mlp, record, rows


def test_a_closure_is_one_step(tmp_path: Path) -> None:
    def train() -> None:
        model = mlp()
        optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
        x, y = batch()

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            return loss

        optimizer.step(closure)
        optimizer.step(closure)

    trace = record(tmp_path, train)
    steps = rows(trace, "SELECT outcome, opt, n_backward FROM steps WHERE outcome='stepped' ORDER BY segment")
    assert [r["opt"] for r in steps] == ["LBFGS#0", "LBFGS#0"]


def test_a_step_that_raises_does_not_confuse_the_next(tmp_path: Path) -> None:
    class Moody(torch.optim.SGD):
        fails = True

        def step(self, closure: Any = None) -> Any:
            if Moody.fails:
                Moody.fails = False
                raise RuntimeError("not today")
            return super().step(closure)

    def train() -> None:
        model = mlp()
        optimizer = Moody(model.parameters(), lr=0.1)
        x, y = batch()
        nn.functional.cross_entropy(model(x), y).backward()
        with pytest.raises(RuntimeError):
            optimizer.step()
        optimizer.step()

    outcomes = rows(record(tmp_path, train), "SELECT outcome FROM steps")
    assert outcomes == [{"outcome": "stepped"}]


def test_an_optimizer_around_an_optimizer_is_one_step(tmp_path: Path) -> None:
    class Outer(torch.optim.Optimizer):
        def __init__(self, inner: torch.optim.Optimizer) -> None:
            self.inner = inner
            super().__init__(inner.param_groups[0]["params"], {})

        def step(self, closure: Any = None) -> Any:
            self.inner.step()

    def train() -> None:
        model = mlp()
        optimizer = Outer(torch.optim.SGD(model.parameters(), lr=0.1))
        x, y = batch()
        for _ in range(2):
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()

    steps = rows(record(tmp_path, train), "SELECT opt FROM steps WHERE outcome='stepped' ORDER BY segment")
    assert [r["opt"] for r in steps] == ["Outer#0", "Outer#0"]


def test_params_are_described_with_owner_group_and_state(tmp_path: Path) -> None:
    trace = record(tmp_path, lambda: amp_training(2, init_scale=16.0))
    first = rows(trace, "SELECT * FROM params WHERE name='0.weight' ORDER BY step")
    assert first[0]["owner"] == "AdamW#0"
    assert (first[0]["shape"], first[0]["numel"], first[0]["group"]) == ("16x8", 128, 0)
    assert first[0]["eps"] == 1e-8
    assert list(first[-1]["state_dtypes"]) == ["exp_avg=float32", "exp_avg_sq=float32"]


def test_a_recorder_that_starts_late_sees_the_optimizer_at_its_first_step(tmp_path: Path) -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train() -> None:
        for _ in range(3):
            x, y = batch()
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()

    trace = record(tmp_path, train)
    assert [r["outcome"] for r in rows(trace, "SELECT outcome FROM steps ORDER BY step")] == ["stepped"] * 3
    assert len(rows(trace, "SELECT DISTINCT name FROM tensors WHERE role='grad'")) == 4


def test_two_models_one_after_the_other(tmp_path: Path) -> None:
    def train() -> None:
        amp_training(2)
        amp_training(2)

    steps = rows(record(tmp_path, train), "SELECT step, opt, opt_step FROM steps ORDER BY segment")
    assert [(r["step"], r["opt"], r["opt_step"]) for r in steps] == [
        (0, "AdamW#0", 0),
        (1, "AdamW#0", 1),
        (2, "AdamW#1", 0),
        (3, "AdamW#1", 1),
    ]
