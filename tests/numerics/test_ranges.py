"""range_summary against float64 NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ampscope.numerics.ranges import RangeSummary, range_summary
from ampscope.numerics.scratch import CHUNK


def check(x: torch.Tensor) -> None:
    found = range_summary(x)
    wide = x.double().numpy().reshape(-1)
    finite = wide[np.isfinite(wide)]
    assert found == RangeSummary(
        numel=wide.size,
        amax=float(np.abs(finite).max()) if finite.size else None,
        amin=float(finite.min()) if finite.size else None,
        nonfinite=int((~np.isfinite(wide)).sum()),
        nan=int(np.isnan(wide).sum()),
        zeros=int((finite == 0).sum()),
    )


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.floats(width=32), max_size=20),
    st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
)
def test_any_values(values: list[float], dtype: torch.dtype) -> None:
    check(torch.tensor(values, dtype=torch.float32).to(dtype))


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.int32, torch.int8, torch.bool, torch.float8_e4m3fn], ids=str
)
def test_dtypes(dtype: torch.dtype) -> None:
    check(torch.tensor([0, 1, 5, -3, 100]).to(dtype))


def test_positive_values_only_and_all_bad() -> None:
    check(torch.tensor([3.0, math.inf, 2.0]))
    check(torch.tensor([3.0, -math.inf, math.nan, 0.0]))
    check(torch.full((4,), math.nan))
    check(torch.empty(0))


def test_chunks_and_multiplicity_add_up() -> None:
    x = torch.randn(3 * CHUNK + 5)
    x[CHUNK + 1] = math.inf
    x[-1] = 0
    check(x)
    found = range_summary(torch.tensor([[1.0], [math.nan], [0.0]]).expand(3, 1000))
    assert (found.numel, found.nonfinite, found.nan, found.zeros) == (3000, 1000, 1000, 1000)


def test_complex_parts_count_singly() -> None:
    found = range_summary(torch.tensor([complex(-2, 0)]).conj())
    assert (found.numel, found.amax, found.amin, found.zeros) == (2, 2.0, -2.0, 1)
