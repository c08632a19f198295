"""count_above: bounds hold for every limit, and what is known of the extremes narrows them."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ampscope.numerics.binades import ExponentHistogram
from ampscope.numerics.bounds import (
    Bounded,
    check_histogram,
    count_above,
    flushed,
    headroom,
    is_blind,
    unseen_below,
)
from ampscope.numerics.formats import of_dtype
from ampscope.numerics.histogram import exponent_histogram


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.floats(width=32, allow_nan=False), max_size=30),
    st.one_of(st.floats(1e-45, 1e39), st.integers(-150, 130).map(lambda e: 2.0**e)),
    st.booleans(),
)
def test_bounds_hold(values: list[float], limit: float, inclusive: bool) -> None:
    x = torch.tensor(values, dtype=torch.float32)
    found = count_above(exponent_histogram(x), limit, inclusive=inclusive)
    magnitudes = [abs(v) for v in values if v != 0 and math.isfinite(v)]
    true = sum(m >= limit if inclusive else m > limit for m in magnitudes)
    edge = sum(m == limit for m in magnitudes) if math.frexp(limit)[0] == 0.5 and not inclusive else 0
    assert found.lower - edge <= true <= found.upper
    assert found.lower <= found.estimate <= found.upper


def test_known_extremes_narrow_the_cut_binade() -> None:
    h = exponent_histogram(torch.tensor([1.1, 1.2, 1.9]))
    assert count_above(h, 1.05, inclusive=True) == Bounded(3, 3, 3)
    assert count_above(h, 1.95, inclusive=True) == Bounded(0, 0, 0)
    middle = count_above(h, 1.5, inclusive=True)
    assert (middle.lower, middle.upper, middle.exact) == (1, 2, False)
    assert 1 <= middle.estimate <= 2


def test_limits_at_the_ends() -> None:
    h = exponent_histogram(torch.tensor([1e-40, 1.0]))
    assert count_above(h, 0.0, inclusive=False) == Bounded(2, 2, 2)
    assert count_above(h, math.inf, inclusive=False) == Bounded(0, 0, 0)
    below = count_above(h, 1e-39, inclusive=True)
    assert (below.lower, below.upper) == (1, 1)
    unknown = ExponentHistogram.from_trimmed(-127, [2], numel=2)
    assert count_above(unknown, 1e-39, inclusive=True) == Bounded(0, 1.0, 2)
    assert count_above(ExponentHistogram.from_trimmed(128, [1], numel=1), 2.0**130, inclusive=True).upper == 0


def test_flushed_is_what_is_not_above() -> None:
    h = exponent_histogram(torch.tensor([2.0**-26, 2.0**-24, 0.0]))
    assert flushed(h, of_dtype("fp16")) == Bounded(1, 1, 1)
    assert flushed(h, of_dtype("fp16"), 4.0) == Bounded(0, 0, 0)


def test_headroom_blindness_and_refusal() -> None:
    half = exponent_histogram(torch.tensor([0.0, 2.0]).half())
    assert headroom(half, of_dtype("fp16"), 4.0) == pytest.approx(math.log2(65504) - 3)
    assert unseen_below(half) == 2.0**-25
    assert is_blind(half, of_dtype("fp16"))
    assert is_blind(half, of_dtype("bf16"))
    assert not is_blind(exponent_histogram(torch.tensor([0.0, 2.0])), of_dtype("fp16"))
    assert unseen_below(exponent_histogram(torch.tensor([1]))) == 0
    with pytest.raises(ValueError, match="not a dict"):
        check_histogram({})
