"""Large two-byte tensors read by code: every code against the oracle, and the same answer as by chunks."""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ampscope.numerics import halves
from ampscope.numerics.chunks import tally
from ampscope.numerics.histogram import ExponentHistogram, exponent_histogram
from ampscope.numerics.scratch import CHUNK

Check = Callable[[ExponentHistogram, NDArray[np.float64]], None]
HALVES = [torch.float16, torch.bfloat16]

SPECIAL = [
    0x0000,
    0x8000,
    0x0001,
    0x8001,
    0x007F,
    0x0080,
    0x03FF,
    0x0400,
    0x7BFF,
    0x7C00,
    0x7C01,
    0x7F7F,
    0x7F80,
]
"""Codes at the ends of the ranges of both formats: zeros, subnormals, largest, infinity, NaN."""


def values_of(x: torch.Tensor) -> NDArray[np.float64]:
    as_numpy = np.float16 if x.dtype is torch.float16 else ml_dtypes.bfloat16
    with np.errstate(invalid="ignore"):  # the signalling NaN among them
        found: NDArray[np.float64] = (
            x.contiguous().view(torch.int16).numpy().view(as_numpy).astype(np.float64)
        )
    return found


def from_codes(codes: NDArray[np.uint16], dtype: torch.dtype) -> torch.Tensor:
    return torch.from_numpy(codes.view(np.int16).copy()).view(dtype)


@pytest.mark.parametrize("n", [halves.FEWEST, 2 * CHUNK - 1, 2 * CHUNK, 2 * CHUNK + 1, 4 * CHUNK + 3])
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_every_code_in_every_chunk(check: Check, dtype: torch.dtype, n: int) -> None:
    # A stride that is odd visits all 2^16 codes, each unevenly often where 2^16 does not divide n.
    x = from_codes((np.arange(n, dtype=np.uint32) * 40503).astype(np.uint16), dtype)
    assert halves.in_codes(x)
    check(exponent_histogram(x), values_of(x))


CODES = st.lists(st.integers(0, 2**16 - 1) | st.sampled_from(SPECIAL), min_size=1, max_size=60)


@settings(max_examples=150, deadline=None)
@given(CODES, st.sampled_from(HALVES))
def test_any_codes_are_counted_as_chunks_count_them(
    check: Check, codes: list[int], dtype: torch.dtype
) -> None:
    x = from_codes(np.array(codes, np.uint16), dtype)
    plain = exponent_histogram(x)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(halves, "FEWEST", 1)
        assert halves.in_codes(x)
        found = exponent_histogram(x)
        check(exponent_histogram(x[::2]), values_of(x[::2]))
    check(found, values_of(x))
    assert np.array_equal(found.counts, plain.counts)
    counters = ("numel", "zeros", "nan", "posinf", "neginf", "ge_65520", "amax", "amin_nonzero", "dtype")
    assert [getattr(found, name) for name in counters] == [getattr(plain, name) for name in counters]


@pytest.mark.parametrize("value", [0.0, -0.0, math.inf, -math.inf, math.nan, 6e-8, -65504.0])
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_tensors_of_one_value(check: Check, dtype: torch.dtype, value: float) -> None:
    x = torch.full((halves.FEWEST + 1,), value).to(dtype)
    check(exponent_histogram(x), values_of(x))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_strides(check: Check, dtype: torch.dtype) -> None:
    x = torch.randn(1200, 900, generator=torch.Generator().manual_seed(0)).to(dtype)
    for view in (x.t(), x[:, ::2], x[3:, 7:], x.view(-1)[:300_000].unfold(0, 9, 8)):
        assert halves.in_codes(view)
        check(exponent_histogram(view), values_of(view))
    expanded = x[None, :, :300].expand(2, -1, -1)
    assert not halves.in_codes(expanded)
    check(exponent_histogram(expanded), values_of(expanded))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_sums_keep_the_float64_bound(dtype: torch.dtype) -> None:
    n = halves.FEWEST + 7
    x = (torch.randn(n, generator=torch.Generator().manual_seed(1)) * 1e-3 + 1).to(dtype)
    found, exact = exponent_histogram(x), values_of(x)
    bound = n * 2.0**-53
    assert abs(found.sumabs - math.fsum(np.abs(exact))) <= bound * found.sumabs
    assert abs(found.sum - math.fsum(exact)) <= bound * found.sumabs
    assert abs(found.sumsq - math.fsum(exact**2)) <= bound * found.sumsq
    assert halves.FEWEST > 2**15  # the sums over the table may round that often


def test_halves_add_to_what_is_there(check: Check) -> None:
    """A complex tensor has two parts, and a nested one as many as it likes."""
    total = tally(torch.tensor([2.0**-100, -4.0, math.inf]))
    x = torch.full((halves.FEWEST,), 3.0, dtype=torch.bfloat16)
    halves.tally_halves(x, total)
    check(total.freeze("mixed"), np.concatenate([[2.0**-100, -4.0, math.inf], values_of(x)]))


def test_a_conjugated_half_is_read_by_chunks(check: Check) -> None:
    n = halves.FEWEST
    imaginary = torch.view_as_complex(torch.ones(n, 2)).conj().imag.to(torch.bfloat16)
    lazy = torch._neg_view(imaginary)
    assert not halves.in_codes(lazy)
    check(exponent_histogram(lazy), values_of(lazy.resolve_neg()))


def test_ambient_state_does_not_reach_the_table(check: Check) -> None:
    halves._table.cache_clear()
    x = from_codes(np.tile(np.array(SPECIAL, np.uint16), halves.FEWEST // len(SPECIAL) + 1), torch.bfloat16)
    flushed = torch.set_flush_denormal(True)
    try:
        with torch.device("meta"), torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
            found = exponent_histogram(x)
    finally:
        torch.set_flush_denormal(False)
    check(found, values_of(x))
    assert exponent_histogram(x) == found
    assert flushed or not torch.backends.cpu.get_cpu_capability().startswith("AVX")


def test_only_copy_reads_the_tensor() -> None:
    x = torch.ones(halves.FEWEST, dtype=torch.float16)
    exponent_histogram(x)
    x.untyped_storage().resize_(0)
