from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.diagnose.judging import classifier, half, judge, labelled, line_of, only, serious


def train(factor: str, clip: bool = False) -> None:
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**13)
    for _ in range(9):
        x, y = labelled()
        optimizer.zero_grad()
        with half():
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        by = {"scale": 1.0 / scaler.get_scale(), "ranks": 0.25}.get(factor)
        if by is not None:
            for p in model.parameters():
                assert p.grad is not None
                p.grad.mul_(by)
        else:
            scaler.unscale_(optimizer)
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()


@pytest.mark.parametrize("clip", [False, True])
def test_divided_by_hand_and_by_the_scaler(tmp_path: Path, clip: bool) -> None:
    found = judge(tmp_path, lambda: train("scale", clip))
    assert serious(found) == ["AMP106"]
    assert "2^13" in only(found, "AMP106").claim


@pytest.mark.parametrize("factor", ["ranks", "none"])
def test_silent_on_other_factors_and_on_unscale(tmp_path: Path, factor: str) -> None:
    assert serious(judge(tmp_path, lambda: train(factor))) == []


def with_hooks(by: float, post: bool) -> None:
    """The gradients are multiplied while backward runs."""
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**13)

    def after(p: torch.Tensor) -> None:
        assert p.grad is not None
        p.grad.mul_(by)

    for p in model.parameters():
        if post:
            p.register_post_accumulate_grad_hook(after)
        else:
            p.register_hook(lambda g: g * by)
    for _ in range(9):
        x, y = labelled()
        optimizer.zero_grad()
        with half():
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@pytest.mark.parametrize("post", [False, True])
def test_hooks_that_divide_by_the_scale(tmp_path: Path, post: bool) -> None:
    found = judge(tmp_path, lambda: with_hooks(2.0**-13, post))
    assert serious(found) == ["AMP106"]
    where = only(found, "AMP106").where
    assert where.line == line_of(with_hooks, "p.grad.mul_" if post else "g * by")


@pytest.mark.parametrize("post", [False, True])
def test_silent_on_hooks_that_divide_by_something_else(tmp_path: Path, post: bool) -> None:
    assert serious(judge(tmp_path, lambda: with_hooks(0.25, post))) == []
