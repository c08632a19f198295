"""Merging, shifting, trimming and rebuilding of histograms."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ampscope.numerics.binades import HIST_BINS, HIST_MAX, HIST_MIN, ExponentHistogram
from ampscope.numerics.histogram import exponent_histogram
from ampscope.trace import schema

Check = Callable[[ExponentHistogram, NDArray[np.float64]], None]
FLOAT32 = st.floats(width=32)


def test_layout_is_the_traces() -> None:
    assert HIST_MIN == schema.HIST_MIN
    assert (HIST_BINS, HIST_MAX) == (256, 128)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(FLOAT32, max_size=20), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_shuffled_shards_merge_to_the_whole(shards: list[list[float]], rng: object) -> None:
    values = [v for shard in shards for v in shard]
    whole = exponent_histogram(torch.tensor(values, dtype=torch.float32))
    order = list(range(len(shards)))
    rng.shuffle(order)  # type: ignore[attr-defined]
    merged = ExponentHistogram.empty()
    for i in order:
        merged = merged.merge(exponent_histogram(torch.tensor(shards[i], dtype=torch.float32)))
    assert np.array_equal(merged.counts, whole.counts)
    for field in ("numel", "zeros", "nan", "posinf", "neginf", "ge_65520", "amax", "amin_nonzero", "dtype"):
        assert getattr(merged, field) == getattr(whole, field), field
    assert merged.sumabs == pytest.approx(whole.sumabs, rel=1e-14)
    assert merged.sumsq == pytest.approx(whole.sumsq, rel=1e-14)
    assert merged.sum == pytest.approx(whole.sum, rel=1e-14, abs=1e-14 * whole.sumabs)


@pytest.mark.parametrize(("mean", "std"), [(0.0, 1.0), (3.0, 0.5), (-1e4, 0.3), (1e-6, 1e-9)])
def test_moments_of_shuffled_shards_are_those_of_the_whole(check: Check, mean: float, std: float) -> None:
    rng = np.random.default_rng(0)
    x = (mean + std * rng.standard_normal(50_000)).astype(np.float32)
    shards = np.array_split(rng.permutation(x), 37)
    merged = ExponentHistogram.empty("float32")
    for shard in shards:
        merged = merged.merge(exponent_histogram(torch.from_numpy(shard)))
    check(merged, x.astype(np.float64))
    wide = x.astype(np.float64)
    assert merged.mean == pytest.approx(wide.mean(), rel=1e-12, abs=1e-14)
    assert merged.variance == pytest.approx(wide.var(), rel=max(1e-12, 1e-14 * (mean / std) ** 2))


def test_moments_leave_non_finite_out_and_need_an_element() -> None:
    h = exponent_histogram(torch.tensor([1.0, 3.0, math.inf, math.nan]))
    assert (h.mean, h.variance, h.finite, h.nonfinite, h.nonzero) == (2.0, 1.0, 2, 2, 2)
    assert math.isnan(ExponentHistogram.empty().mean)
    assert math.isnan(exponent_histogram(torch.tensor([math.inf])).variance)
    assert exponent_histogram(torch.full((7,), 0.1)).variance < 1e-17


@settings(max_examples=80, deadline=None)
@given(st.lists(st.floats(2.0**-40, 2.0**40, width=32), max_size=30), st.integers(-60, 60))
def test_shift_is_multiplication_by_a_power_of_two(values: list[float], k: int) -> None:
    x = torch.tensor(values, dtype=torch.float32)
    shifted, true = exponent_histogram(x).shift(k), exponent_histogram(x * 2.0**k)
    assert np.array_equal(shifted.counts, true.counts)
    assert (shifted.amax, shifted.amin_nonzero) == (true.amax, true.amin_nonzero)
    assert shifted.sum == pytest.approx(true.sum, rel=1e-14)
    assert shifted.sumsq == pytest.approx(true.sumsq, rel=1e-14)
    assert shifted.ge_65520 <= true.ge_65520
    if shifted.ge_65520_exact:
        assert shifted.ge_65520 == true.ge_65520


def test_shift_piles_up_at_the_ends() -> None:
    h = exponent_histogram(torch.tensor([2.0**-120, 1.0, 2.0**120]))
    assert h.shift(-20).trimmed() == (-127, [1, *[0] * 106, 1, *[0] * 119, 1])
    assert h.shift(20).counts[-1] == 1
    assert h.shift(0) is h
    assert h.shift(2000).amax == math.inf


def test_dtype_of_a_merge() -> None:
    half = exponent_histogram(torch.ones(2, dtype=torch.float16))
    single = exponent_histogram(torch.ones(2))
    assert half.merge(half).dtype == "float16"
    assert half.merge(single).dtype == "mixed"
    assert half.merge(ExponentHistogram.empty("float32")).dtype == "float16"
    assert ExponentHistogram.empty("float32").merge(half).dtype == "float16"


@settings(max_examples=60, deadline=None)
@given(st.lists(FLOAT32, max_size=30))
def test_stored_columns_rebuild_the_histogram(values: list[float]) -> None:
    h = exponent_histogram(torch.tensor(values, dtype=torch.float32))
    lo, hist = h.trimmed()
    assert not hist or (hist[0] > 0 and hist[-1] > 0)
    again = ExponentHistogram.from_trimmed(
        lo, hist, numel=h.numel, zeros=h.zeros, nan=h.nan, posinf=h.posinf, neginf=h.neginf, ge_65520=h.ge_65520,
        amax=h.amax, amin_nonzero=h.amin_nonzero, sum=h.sum, sumsq=h.sumsq, sumabs=h.sumabs, dtype=h.dtype,
    )  # fmt: skip
    assert again == h
    assert hash(again) == hash(h)


def test_other_layouts_are_refused() -> None:
    with pytest.raises(ValueError, match=r"outside the -127\.\.128 of this layout"):
        ExponentHistogram.from_trimmed(100, [1] * 40, numel=40)
    with pytest.raises(ValueError, match=r"outside the -127\.\.128"):
        ExponentHistogram.from_trimmed(-130, [1], numel=1)
    with pytest.raises(ValueError, match="add up to 2 elements where numel says 5"):
        ExponentHistogram.from_trimmed(0, [2], numel=5)
    with pytest.raises(ValueError, match="damaged"):
        ExponentHistogram.from_trimmed(0, [-1, 3], numel=2)
    with pytest.raises(ValueError, match="256 integer bins"):
        ExponentHistogram(np.zeros(10, np.int64), 0, 0, 0, 0, 0, 0, None, None, 0.0, 0.0, 0.0, "float32")
    wrong = np.zeros(256)
    with pytest.raises(ValueError, match="256 integer bins"):
        ExponentHistogram(wrong, 0, 0, 0, 0, 0, 0, None, None, 0.0, 0.0, 0.0, "float32")  # type: ignore[arg-type]


def test_it_is_immutable_and_owns_its_counts() -> None:
    counts = np.zeros(256, np.int64)
    h = ExponentHistogram(counts, 0, 0, 0, 0, 0, 0, None, None, 0.0, 0.0, 0.0, "float32")
    counts[0] = 7
    assert h.counts[0] == 0
    with pytest.raises(ValueError, match="read-only"):
        h.counts[0] = 1
    assert h != 3
    assert h == ExponentHistogram.empty()
