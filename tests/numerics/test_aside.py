"""Tensors of middle size that are copied aside: counted as they were, and with the same answers as at once."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from ampscope.numerics.aside import MOST, ROOM, Aside
from ampscope.numerics.histogram import ExponentHistogram, exponent_histogram
from ampscope.numerics.rows import StatsRows
from ampscope.numerics.together import FEW

Check = Callable[[ExponentHistogram, NDArray[np.float64]], None]


def read(tensors: list[torch.Tensor]) -> list[ExponentHistogram]:
    rows = StatsRows("cpu", len(tensors))
    assert rows.read_many((x, i) for i, x in enumerate(tensors)) == len(tensors)
    return [found for _, found in rows.drain().result()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("n", [FEW + 1, 10_001, MOST - 1, MOST])
def test_the_same_as_at_once(check: Check, dtype: torch.dtype, n: int) -> None:
    x = torch.randn(n, generator=torch.Generator().manual_seed(n)).to(dtype)
    x[:: n // 7] = torch.tensor([math.nan, math.inf, -math.inf, 0.0, 65504.0, -0.0, 1e-7, 1.0])[
        : len(x[:: n // 7])
    ]
    (found,) = read([x])
    check(found, x.double().numpy())
    assert found == exponent_histogram(x)


def test_values_of_their_moment() -> None:
    rows, x = StatsRows("cpu", 3), torch.ones(FEW + 1, 2)
    rows.read(x, 0)
    x.zero_()
    rows.read(x, 1)
    x.data.fill_(3.0)
    rows.read(x, 2)
    assert [h.sum for _, h in rows.drain().result()] == [2.0 * (FEW + 1), 0.0, 6.0 * (FEW + 1)]


def test_more_than_there_is_room_for() -> None:
    aside = Aside()
    generator = torch.Generator().manual_seed(0)
    dtypes = (torch.float32, torch.float16, torch.bfloat16)
    tensors = [
        torch.randn(FEW + 1 + i % 5 * 50_000, generator=generator).to(dtypes[i % 3]) for i in range(100)
    ]
    assert sum(x.numel() * x.element_size() for x in tensors) > ROOM
    waiting = [aside.take(x, x.dtype) for x in tensors]
    assert waiting[0].tally is not None
    assert waiting[-1].tally is None
    aside.count()
    for x, found in zip(tensors, waiting, strict=True):
        assert found.tally is not None
        assert found.tally.freeze(str(x.dtype).removeprefix("torch.")) == exponent_histogram(x)


def test_shapes_and_strides(check: Check) -> None:
    x = torch.randn(60, 100, generator=torch.Generator().manual_seed(0))
    views = [
        x.t(), x[:, ::2], x[None].expand(2, -1, -1), x.view(5, 12, 100).permute(2, 0, 1),
        torch.view_as_complex(x.view(-1, 2)).conj().imag,
    ]  # fmt: skip
    for view, found in zip(views, read(views), strict=True):
        check(found, view.double().resolve_neg().contiguous().numpy())


def test_made_under_inference_mode_and_used_outside() -> None:
    x = torch.randn(FEW + 1)
    rows = StatsRows("cpu", 2)
    with torch.inference_mode():
        rows.read(x, 0)
    rows.read(x, 1)
    assert [h for _, h in rows.drain().result()] == [exponent_histogram(x)] * 2
