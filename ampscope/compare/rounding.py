"""How far two numbers may lie apart and still be the same but for rounding."""

from __future__ import annotations

import math
from collections.abc import Iterable

UNIT_ROUNDOFF = {
    "float64": 2.0**-53,
    "float32": 2.0**-24,
    "tf32": 2.0**-11,
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
    "float8_e4m3fn": 2.0**-4,
    "float8_e5m2": 2.0**-3,
}
"""Largest relative error of rounding to nearest, in the normal range (IEEE 754-2019, Higham 2002, section 2.2)."""

DEPTH = 16.0
"""Roundings of n ops in a row add up to about sqrt(n) of one (Higham and Mary 2019): 256 ops, a deep network."""


def tolerance(dtypes: Iterable[str]) -> float:
    """The relative difference that rounding explains in runs whose work is done in `dtypes`; of several the
    coarsest counts, and unknown ones are taken for float32."""
    coarsest = max(
        (UNIT_ROUNDOFF.get(d, UNIT_ROUNDOFF["float32"]) for d in dtypes), default=UNIT_ROUNDOFF["float32"]
    )
    return DEPTH * coarsest


def relative(one: float, two: float) -> float:
    """|one - two| over the larger of the two; 0 for equal values, two NaN included, inf where only one is finite."""
    if one == two or (math.isnan(one) and math.isnan(two)):
        return 0.0
    if not (math.isfinite(one) and math.isfinite(two)):
        return math.inf
    return abs(one - two) / max(abs(one), abs(two))
