from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from ampscope.diagnose import lineage
from tests.diagnose.opkit import flow, op

TYPES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    "constant", [1e-12, 2.9e-8, 3.1e-8, 1e-4, 0.5, 0.9, 0.9995, 0.9999, 1 - 1e-7, 1.0001, 1.01, -1e-9]
)
def test_rounding_away_is_what_the_dtype_does(constant: float, dtype: str) -> None:
    rounded = float(np.float32(TYPES[dtype](constant)))
    lost = rounded == 0.0 or (abs(rounded) == 1.0 and abs(constant) != 1.0)

    assert lineage.rounds_away(constant, dtype, bound=True) == lost


def test_one_is_a_bound_only() -> None:
    assert not lineage.rounds_away(1 - 1e-7, "float16", bound=False)
    assert not lineage.rounds_away(0.0, "float16", bound=True)
    assert not lineage.rounds_away(float("inf"), "float16", bound=True)


def test_a_constant_that_vanishes_and_shows() -> None:
    lost = op(0, "add", (1,), (2,), scalars=(1e-8,), out_zeros=2)
    unneeded = op(1, "add", (1,), (2,), scalars=(1e-8,))
    kept = op(2, "add", (1,), (2,), scalars=(1e-3,), out_zeros=2)
    wide = op(3, "add", (1,), (2,), scalars=(1e-8,), out_zeros=2, out_dtypes=("float32",))
    segment = flow(lost, unneeded, kept, wide)

    assert [lineage.vanished_constant(segment, o) for o in segment.ops] == [1e-8, None, None, None]


def test_a_constant_in_a_tensor() -> None:
    constant = op(0, "scalar_tensor", (), (5,), scalars=(1e-9,), out_dtypes=("float32",))
    bound = op(1, "clamp_min_", (1, 5), (1,), in_shapes=("8", ""), out_zeros=1)
    segment = flow(constant, bound)

    assert lineage.vanished_constant(segment, bound) == 1e-9


def test_a_safeguard_is_found_through_root_and_view() -> None:
    guard = op(0, "add", (1,), (2,), scalars=(1e-12,), out_zeros=1)
    division = op(3, "div", (9, 3), (4,))
    segment = flow(guard, op(1, "sqrt", (2,), (3,)), op(2, "expand", (3,), (3,)), division)

    assert lineage.safeguard_lost(segment, division, 1) == guard
    assert lineage.safeguard_lost(segment, division, 0) is None


def test_saturated_probabilities() -> None:
    sure = op(0, "sigmoid", (1,), (2,), out_zeros=3)
    log = op(2, "log", (3,), (4,))
    segment = flow(sure, op(1, "rsub", (2,), (3,), scalars=(1.0,)), log)
    unsure = flow(op(0, "sigmoid", (1,), (2,), out_amax=0.99), op(1, "log", (2,), (3,)))

    assert lineage.saturated(segment, log) == sure
    assert lineage.saturated(unsure, unsure.ops[1]) is None


def test_cancellation_is_small_beside_what_was_subtracted() -> None:
    def distance(lowest: float) -> bool:
        difference = op(0, "sub", (1, 2), (3,), in_amax=50.0)
        root = op(1, "sqrt", (3,), (4,), in_amin=lowest, out_nan=1)
        segment = flow(difference, root)
        return lineage.cancelled(segment, root) == difference

    assert distance(-0.03)
    assert not distance(-20.0)


def test_equal_things_are_no_cancellation_in_backward() -> None:
    direct = op(0, "sub", (1, 2), (3,), out_zeros=1)
    division = op(1, "div", (9, 3), (4,), phase="backward")
    squares = flow(op(-1, "pow", (8,), (1,), scalars=(2.0,)), direct, division)

    assert lineage.cancelled(flow(direct, division), division, 1) is None
    assert lineage.cancelled(squares, division, 1) == direct


def test_masks_and_what_is_none() -> None:
    literal = op(0, "masked_fill", (1,), (2,), out_nonfinite=4)
    log_of_mask = op(1, "log", (1,), (2,), in_amax=1.0, out_amax=0.0, out_nonfinite=2)
    constant = op(2, "mul", (1,), (2,), scalars=(-1e9,), out_nonfinite=2)
    overflow = op(3, "mul", (1,), (2,), scalars=(1e5,), out_nonfinite=2)

    assert [lineage.is_mask(o) for o in (literal, log_of_mask, constant, overflow)] == [
        True,
        True,
        True,
        False,
    ]
    assert lineage.mask_constant(constant) == -1e9


@pytest.mark.parametrize(("source", "masked"), [("masked_fill", True), ("addmm", False)])
def test_a_row_that_is_masked(source: str, masked: bool) -> None:
    made = op(0, source, (1,), (2,), out_nonfinite=4)
    softmax = op(1, "_softmax", (2,), (3,), in_nonfinite=4, out_nonfinite=4, out_nan=4)

    assert lineage.masked_row(flow(made, softmax), softmax) is masked


def test_nan_that_came_in_is_not_made() -> None:
    made = op(0, "mul", (1,), (2,), out_nonfinite=4, out_nan=4)
    later = op(1, "add", (2,), (3,), in_nonfinite=4, out_nonfinite=4, out_nan=4)

    assert not lineage.makes_nan(flow(made, later), later)
    assert lineage.births(flow(made, later), later) == [made]
