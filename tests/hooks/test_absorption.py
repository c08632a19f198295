from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.recording import batch, mlp, record, rows

BF16 = torch.bfloat16


def absorbed(tmp_path: Path, work: Callable[[], object], op: str) -> list[Any]:
    """What the census of the first segment says of `op` after a backward."""

    def train() -> None:
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x, y = batch()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        work()
        optimizer.step()

    trace = record(tmp_path, train)
    return [
        r["absorbed"]
        for r in rows(trace, f"SELECT absorbed FROM ops WHERE op='aten::{op}' AND phase='other' ORDER BY seq")
    ]


def test_a_running_sum_that_stops(tmp_path: Path) -> None:
    total, loss = torch.tensor(256.0, dtype=BF16), torch.tensor(0.8, dtype=BF16)

    def work() -> None:
        (total + loss), (torch.tensor(2.0, dtype=BF16) + loss), (total + 0 * loss)

    assert absorbed(tmp_path, work, "add") == [1, 0, 0]


def test_an_average_whose_increments_round_away(tmp_path: Path) -> None:
    teacher = torch.full((100,), 1.0, dtype=torch.float16)
    student = torch.full((100,), 1.0, dtype=torch.float16)
    student[:30] = 1.1
    student[30:40] = 3.0
    assert absorbed(tmp_path, lambda: teacher.lerp_(student, 1e-3).clamp_(0), "lerp_") == [30]


def test_a_second_moment_in_half(tmp_path: Path) -> None:
    v = torch.full((10,), 1.0, dtype=BF16)
    g = torch.full((10,), 0.5, dtype=BF16)
    assert absorbed(tmp_path, lambda: v.mul_(0.999).addcmul_(g, g, value=1e-3), "mul_") == [10]


def test_lists_of_tensors_count_together(tmp_path: Path) -> None:
    many = [torch.full((4,), 256.0, dtype=BF16) for _ in range(3)]
    assert absorbed(tmp_path, lambda: torch._foreach_add_(many, 0.5), "_foreach_add_") == [12]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_wide_tensors_are_not_compared(tmp_path: Path, dtype: torch.dtype) -> None:
    total = torch.tensor(1e9, dtype=dtype)
    assert absorbed(tmp_path, lambda: total.add_(1e-9).abs_(), "add_") == [None]
