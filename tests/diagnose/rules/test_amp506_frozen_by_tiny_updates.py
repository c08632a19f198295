from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from ampscope.diagnose import Diagnosis
from tests.diagnose.judging import classifier, judge, labelled, only, serious

Make = Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]


def sgd(params: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(params, lr=0.1)


def adam(params: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adam(params, lr=1e-3)


def train(path: Path, make: Make, factor: float, steps: int = 8, rate: float = 1.0) -> Diagnosis:
    def run() -> None:
        model = classifier()
        optimizer = make(list(model.parameters()))
        for group in optimizer.param_groups:
            group["lr"] *= rate
        for _ in range(steps):
            x, y = labelled()
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            for p in model.parameters():
                p.grad = None if p.grad is None else p.grad * factor
            optimizer.step()

    return judge(path, run, every=1)


def test_tiny_gradients_freeze_the_weights(tmp_path: Path) -> None:
    found = train(tmp_path, sgd, 1e-7)
    assert serious(found) == ["AMP506"]
    assert "they hardly move" in only(found, "AMP506").claim


def test_where_eps_decides_it_is_a_symptom(tmp_path: Path) -> None:
    found = train(tmp_path, adam, 1e-10)
    assert serious(found) == ["AMP504"]
    assert any("Adam's steps" in s for s in only(found, "AMP504").symptoms)


@pytest.mark.parametrize("make", [sgd, adam])
def test_silent_at_ordinary_gradients(tmp_path: Path, make: Make) -> None:
    assert serious(train(tmp_path, make, 1.0)) == []


def test_a_small_learning_rate_is_what_it_says(tmp_path: Path) -> None:
    assert serious(train(tmp_path, sgd, 1.0, rate=1e-11)) == []


def large(make: Make, shift: float) -> Callable[[], None]:
    """A parameter in physical units: large, and no gradient of a usual size is much beside it."""

    def run() -> None:
        temperature = torch.nn.Parameter(torch.full((32,), shift))
        optimizer = make([temperature])
        for _ in range(8):
            x = torch.randn(64, 32)
            optimizer.zero_grad()
            (x * (temperature - shift - 1.0)).mean(1).square().mean().backward()
            optimizer.step()

    return run


def test_adam_with_full_steps_is_not_frozen(tmp_path: Path) -> None:
    """One element of 32 moves by 1e-3 a step, as Adam should, and that is nothing beside 5e3."""
    found = judge(tmp_path, large(adam, 5e3), every=1)
    assert "AMP506" not in found.coverage.fired


def test_weights_that_are_large_by_nature_are_worth_a_word_only(tmp_path: Path) -> None:
    found = judge(tmp_path, large(sgd, 1e3), every=1)
    assert serious(found) == []
    assert only(found, "AMP506").severity == "info"


def test_convergence_is_not_frozen(tmp_path: Path) -> None:
    def converging() -> None:
        weight = torch.nn.Parameter(torch.ones(32))
        optimizer = torch.optim.SGD([weight], lr=0.5)
        for _ in range(40):
            optimizer.zero_grad()
            (weight - 2.0).square().sum().backward()
            optimizer.step()

    assert serious(judge(tmp_path, converging, every=1)) == []
