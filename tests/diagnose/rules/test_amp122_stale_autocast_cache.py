from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from tests.diagnose.judging import classifier, half, judge, labelled, line_of, only, serious


def train(how: str, steps: int = 10) -> None:
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def one_step() -> None:
        x, y = labelled()
        optimizer.zero_grad()
        F.cross_entropy(model(x).float(), y).backward()
        optimizer.step()

    if how == "one context":
        with half(torch.bfloat16):
            for _ in range(steps):
                one_step()
    elif how == "no cache":
        with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False):
            for _ in range(steps):
                one_step()
    else:
        for _ in range(steps):
            with half(torch.bfloat16):
                one_step()


def test_one_context_round_the_loop(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: train("one context"))
    assert serious(found) == ["AMP122"]
    assert only(found, "AMP122").where.line == line_of(train, "optimizer.step()")


@pytest.mark.parametrize("how", ["no cache", "context per step"])
def test_silent_when_weights_are_cast_again(tmp_path: Path, how: str) -> None:
    assert serious(judge(tmp_path, lambda: train(how))) == []
