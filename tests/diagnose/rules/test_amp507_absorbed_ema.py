from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from ampscope.diagnose import Diagnosis
from tests.diagnose.judging import classifier, judge, labelled, line_of, serious

Tensors = list[torch.Tensor]
Update = Callable[[Tensors, Tensors], None]


def lerp(slow: Tensors, fast: Tensors) -> None:
    for s, f in zip(slow, fast, strict=True):
        s.lerp_(f.to(s.dtype), 0.001)  # here


def decay_and_add(slow: Tensors, fast: Tensors) -> None:
    for s, f in zip(slow, fast, strict=True):
        s.mul_(0.999).add_(f.to(s.dtype), alpha=0.001)  # here


def one_expression(slow: Tensors, fast: Tensors) -> None:
    for s, f in zip(slow, fast, strict=True):
        s.copy_(0.999 * s + 0.001 * f.to(s.dtype))  # here


def through_float32(slow: Tensors, fast: Tensors) -> None:
    for s, f in zip(slow, fast, strict=True):
        s.copy_(s.float().mul(0.999).add(f, alpha=0.001))  # here


def foreach(slow: Tensors, fast: Tensors) -> None:
    new = [f.to(s.dtype) for s, f in zip(slow, fast, strict=True)]
    torch._foreach_lerp_(slow, new, 0.001)  # here


def towards(slow: Tensors, fast: Tensors) -> None:
    for s, f in zip(slow, fast, strict=True):
        s.add_(f.to(s.dtype) - s, alpha=0.001)  # here


def quick(slow: Tensors, fast: Tensors) -> None:
    for s, f in zip(slow, fast, strict=True):
        s.lerp_(f.to(s.dtype), 0.1)


def compensated(slow: Tensors, fast: Tensors) -> None:
    for s, f in zip(slow, fast, strict=True):
        lost = LOST.setdefault(id(s), torch.zeros_like(s))
        step = (f.to(s.dtype) - s) * 0.001 + lost
        before = s.clone()
        s.add_(step)
        lost.copy_(step - (s - before))


LOST: dict[int, torch.Tensor] = {}


def stochastic(slow: Tensors, fast: Tensors) -> None:
    for s, f in zip(slow, fast, strict=True):
        exact = s.float().mul(0.999).add(f, alpha=0.001)
        bits = exact.view(torch.int32) + torch.randint(0, 1 << 16, exact.shape, dtype=torch.int32)
        s.copy_(bits.bitwise_and(-65536).view(torch.float32))


WRONG = (lerp, decay_and_add, one_expression, through_float32, foreach, towards)


def train(path: Path, stored: torch.dtype, *updates: Update) -> Diagnosis:
    """One student and one teacher for each way of averaging."""

    def run() -> None:
        student = classifier()
        teachers = [copy.deepcopy(student).to(stored).requires_grad_(False) for _ in updates]
        optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3)
        for _ in range(9):
            x, y = labelled()
            optimizer.zero_grad()
            F.cross_entropy(student(x), y).backward()
            optimizer.step()
            with torch.no_grad():
                for teacher, update in zip(teachers, updates, strict=True):
                    update(list(teacher.parameters()), [p.detach() for p in student.parameters()])

    return judge(path, run, every=1000, budget=1e4)


@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float16])
def test_every_way_of_averaging_in_half(tmp_path: Path, stored: torch.dtype) -> None:
    found = train(tmp_path, stored, *WRONG)
    assert serious(found) == ["AMP507"] * len(WRONG)
    assert {f.where.line for f in found.findings} >= {line_of(update, "# here") for update in WRONG}
    first = found.findings[0]
    assert str(stored).removeprefix("torch.") in first.claim
    assert "0.001" in first.claim


def test_silent_in_float32(tmp_path: Path) -> None:
    assert serious(train(tmp_path, torch.float32, *WRONG)) == []


def test_silent_where_the_average_can_follow(tmp_path: Path) -> None:
    """A larger weight, what is lost carried along, random rounding."""
    found = train(tmp_path, torch.bfloat16, quick, compensated, stochastic)
    assert "AMP507" not in found.coverage.fired


def averaged_model(stored: torch.dtype) -> None:
    model = classifier().to(stored)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.999))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(9):
        x, y = labelled()
        optimizer.zero_grad()
        F.cross_entropy(model(x.to(stored)).float(), y).backward()
        optimizer.step()
        average.update_parameters(model)


def test_average_of_a_library(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: averaged_model(torch.bfloat16), every=1000, budget=1e4)
    assert serious(found) == ["AMP507"]
