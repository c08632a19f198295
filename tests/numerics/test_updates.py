"""compare_update against an element-by-element oracle in exact fractions, and the subset of elements."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ampscope.numerics.updates import Update, UpdateStats, compare_update, compare_updates, subset_indices
from ampscope.trace.schema import UPDATES


def floor_log2(ratio: Fraction) -> int:
    e = ratio.numerator.bit_length() - ratio.denominator.bit_length()
    return e if Fraction(2) ** e <= ratio else e - 1


def oracle(before: list[float], after: list[float], grad: list[float]) -> dict[str, object]:
    """The same counts by exact rational arithmetic and NumPy/ml_dtypes rounding, for float32 weights."""
    out = dict.fromkeys(
        ["grad_nonzero", "unchanged", "absorbed_fp16", "absorbed_bf16", "moved", "below_2_11", "below_2_8"], 0
    )
    hist: dict[int, int] = {}
    for w, new, g in zip(before, after, grad, strict=True):
        finite = math.isfinite(w) and math.isfinite(new)
        wanted = math.isfinite(g) and g != 0
        out["grad_nonzero"] += wanted
        out["unchanged"] += wanted and finite and w == new and math.copysign(1, w) == math.copysign(1, new)
        if not finite or w == new:
            continue
        out["moved"] += 1
        with np.errstate(over="ignore"):
            out["absorbed_fp16"] += bool(np.float16(w) == np.float16(new))
            out["absorbed_bf16"] += bool(ml_dtypes.bfloat16(w) == ml_dtypes.bfloat16(new))
        if w != 0:
            ratio = abs(Fraction(new - w)) / abs(Fraction(w))  # the difference as float64 has it
            out["below_2_11"] += ratio < Fraction(1, 2**11)
            out["below_2_8"] += ratio < Fraction(1, 2**8)
            e = max(-127, min(127, floor_log2(ratio)))
            hist[e] = hist.get(e, 0) + 1
    return {**out, "hist": hist}


def check(before: torch.Tensor, after: torch.Tensor, grad: torch.Tensor) -> UpdateStats:
    found = compare_update(before, after, grad, 0.1)
    expected = oracle(*(t.double().tolist() for t in (before, after, grad)))
    hist = expected.pop("hist")
    assert {k: getattr(found, k) for k in expected} == expected
    lo = found.ratio_lo or 0
    assert {lo + i: n for i, n in enumerate(found.ratio_hist) if n} == hist
    return found


FLOAT32 = st.floats(width=32)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(FLOAT32, FLOAT32, FLOAT32), min_size=1, max_size=12))
def test_any_float32_weights(rows: list[tuple[float, float, float]]) -> None:
    before, after, grad = (torch.tensor(c, dtype=torch.float32) for c in zip(*rows, strict=True))
    check(before, after, grad)


@settings(max_examples=100, deadline=None)
@given(FLOAT32.filter(lambda x: x != 0 and math.isfinite(x)), st.integers(-130, 3), st.integers(-3, 3))
def test_ratios_at_powers_of_two_and_their_neighbours(w: float, e: int, steps: int) -> None:
    before = torch.tensor([w], dtype=torch.float32)
    after = before + before * 2.0**e
    for _ in range(abs(steps)):
        after = torch.nextafter(after, torch.tensor(math.copysign(math.inf, steps)))
    check(before, after, torch.ones(1))


def test_realistic_float32_weights_over_several_blocks() -> None:
    rng = torch.Generator().manual_seed(0)
    w = torch.randn(70_001, generator=rng) * 0.02
    new = w - 1e-5 * torch.randn(w.shape, generator=rng)
    found = check(w, new, torch.randn(w.shape, generator=rng))
    dw = (new.double() - w.double()).numpy()
    assert found.update_norm == pytest.approx(float(np.linalg.norm(dw)), rel=1e-13)
    assert found.weight_norm == pytest.approx(float(np.linalg.norm(w.double().numpy())), rel=1e-13)
    assert found.update_amax == np.abs(dw).max()
    assert found.absorbed_bf16 > found.absorbed_fp16 > 0


def test_stored_half_weights_that_do_not_move() -> None:
    w = torch.full((100,), 1.0, dtype=torch.float16)
    new = (w.float() - 1e-4).half()  # below half an ulp of 1: stays
    new[:10] = 0.5
    grad = torch.ones(100, dtype=torch.float16)
    grad[50:60] = 0
    grad[60] = math.nan
    found = compare_update(w, new, grad, lr=1e-4)
    assert (found.grad_nonzero, found.unchanged, found.moved) == (89, 79, 10)
    assert found.absorbed_fp16 == 0
    assert (found.ratio_lo, found.ratio_hist) == (-1, (10,))


def test_half_ulp_band_of_the_2_11_rule() -> None:
    w = torch.tensor([1.0, 1.0, 2 - 2.0**-10, 1.0])
    after = w + torch.tensor([2.0**-12, 2.0**-11 * 1.01, 2.0**-11 * 1.01, 2.0**-8 * 1.01])
    found = compare_update(w, after)
    assert (found.absorbed_fp16, found.absorbed_bf16) == (1, 3)
    assert (found.below_2_11, found.below_2_8, found.grad_nonzero, found.unchanged) == (2, 3, None, None)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_dtypes_and_non_finite(dtype: torch.dtype) -> None:
    w = torch.tensor([1.0, math.nan, 2.0, math.inf, 0.0, 4.0, -0.0], dtype=dtype)
    new = torch.tensor([1.5, 1.0, math.inf, math.nan, 1.0, 4.0, 0.0], dtype=dtype)
    found = compare_update(w, new, torch.ones(7), 1.0)
    assert (found.numel, found.moved, found.nonfinite_after, found.grad_nonzero) == (7, 2, 2, 7)
    assert found.unchanged == 1
    assert found.update_norm == math.sqrt(1.25)
    assert found.weight_norm == math.sqrt(21)
    assert (found.update_amax, found.ratio_lo, found.ratio_hist) == (1.0, -1, (1,))


def test_float64_is_rounded_once() -> None:
    tie = 1 + 2.0**-11
    w = torch.tensor([tie + 2.0**-40], dtype=torch.float64)
    new = torch.tensor([tie - 2.0**-40], dtype=torch.float64)
    assert compare_update(w, new).absorbed_fp16 == 0


def test_float64_squares_that_overflow_are_no_warning() -> None:
    w = torch.tensor([1e200, 1.0], dtype=torch.float64)
    found = compare_update(w, w * 2)
    assert (found.moved, found.nonfinite_after, found.ratio_hist) == (2, 0, (2,))
    assert math.isinf(found.update_norm)


def test_empty_and_shapes_and_views() -> None:
    found = compare_update(torch.empty(0), torch.empty(0), torch.empty(0), 0.1)
    assert (found.numel, found.update_amax, found.ratio_lo, found.ratio_hist) == (0, None, None, ())
    w = torch.randn(6, 4)
    transposed, plain = compare_update(w.t(), (w + 1).t(), w.t(), 0.1), compare_update(w, w + 1, w, 0.1)
    assert transposed.ratio_hist == plain.ratio_hist
    assert transposed.update_norm == pytest.approx(plain.update_norm, rel=1e-13)


def test_zero_learning_rate_judges_nothing_unchanged() -> None:
    w = torch.ones(3)
    assert compare_update(w, w.clone(), w, 0.0).unchanged is None
    assert compare_update(w, w.clone(), w, 0.1).unchanged == 3


def test_inputs_are_left_alone() -> None:
    w, new, g = torch.randn(50), torch.randn(50), torch.randn(50)
    copies = [t.clone() for t in (w, new, g)]
    state = torch.get_rng_state()
    compare_update(w, new, g, 0.1)
    assert torch.equal(torch.get_rng_state(), state)
    for t, c in zip((w, new, g), copies, strict=True):
        assert torch.equal(t, c)
        assert t._version == 0
        t.untyped_storage().resize_(0)


def test_fields_are_columns_of_the_updates_table() -> None:
    assert {f.name for f in fields(UpdateStats)} <= set(UPDATES.column_names)


def test_mismatches_are_refused() -> None:
    w = torch.ones(3)
    with pytest.raises(ValueError, match="same shape and dtype"):
        compare_update(w, w.half())
    with pytest.raises(ValueError, match="grad must have the shape"):
        compare_update(w, w, torch.ones(4))
    with pytest.raises(ValueError, match="real floating-point weights"):
        compare_update(w.int(), w.int())


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 10_000), st.integers(1, 300), st.integers(0, 9))
def test_subset_is_distinct_sorted_in_range_and_repeatable(numel: int, limit: int, seed: int) -> None:
    state = torch.get_rng_state()
    found = subset_indices(numel, limit, seed)
    assert torch.equal(torch.get_rng_state(), state)
    if numel <= limit:
        assert found is None
        return
    assert found is not None
    assert found.dtype is torch.int64
    assert len(found) == limit
    assert 0 <= int(found[0]) <= int(found[-1]) < numel
    assert bool((found[1:] > found[:-1]).all())
    again = subset_indices(numel, limit, seed)
    assert again is not None
    assert torch.equal(found, again)


def test_subset_needs_an_element() -> None:
    with pytest.raises(ValueError, match="at least one element"):
        subset_indices(10, 0, 0)


KINDS = [
    (torch.float32, torch.float32),
    (torch.float32, torch.float16),
    (torch.float32, None),
    (torch.float16, torch.float16),
    (torch.bfloat16, torch.float32),
    (torch.float64, torch.float64),
    (torch.float8_e4m3fn, torch.float16),
]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(KINDS),
            st.sampled_from([0, 1, 7, 300, 65_536, 70_001]),
            st.sampled_from([None, math.nan, math.inf, 0.0]),
            st.sampled_from([None, 0.0, 0.1]),
        ),
        max_size=6,
    ),
    st.integers(0, 2**31),
)
def test_weights_side_by_side_do_not_meet(
    chosen: list[tuple[tuple[torch.dtype, torch.dtype | None], int, float | None, float | None]], seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    updates = []
    for (dtype, slope), n, odd, lr in chosen:
        before = torch.randn(n, generator=generator)
        after = before + 1e-3 * torch.randn(n, generator=generator).mul(torch.arange(n) % 3 != 0)
        if odd is not None:
            after[n // 2 :][:1] = odd
        grad = None if slope is None else torch.randn(n, generator=generator).to(slope)
        updates.append(Update(before.to(dtype), after.to(dtype), grad, lr))
    together = compare_updates(updates)
    alone = [compare_update(u.before, u.after, u.grad, u.lr) for u in updates]
    for one, other in zip(together, alone, strict=True):
        norms = (one.update_norm, one.weight_norm)
        assert norms == pytest.approx((other.update_norm, other.weight_norm), rel=1e-12)
        assert replace(one, update_norm=0.0, weight_norm=0.0) == replace(
            other, update_norm=0.0, weight_norm=0.0
        )


def test_infinite_squares_of_one_weight_leave_the_others_alone() -> None:
    huge = torch.full((3,), 1e200, dtype=torch.float64)
    other = torch.tensor([1.0, 0.0, math.nan], dtype=torch.float64)
    first, second = compare_updates([Update(huge, huge * 2), Update(other, torch.ones_like(other))])
    assert (first.weight_norm, first.moved, first.nonfinite_after) == (math.inf, 3, 0)
    assert (second.weight_norm, second.moved, second.update_amax) == (1.0, 1, 1.0)
