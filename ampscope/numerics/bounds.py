"""How many elements of an exponent histogram lie beyond a threshold, with bounds where it cuts a binade."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .binades import HIST_MIN, ExponentHistogram
from .formats import FORMATS, Format


@dataclass(frozen=True)
class Bounded:
    """A count of elements known to lie in lower..upper; estimate: the count if elements are spread evenly over
    the binade that a threshold cuts (the count itself where lower == upper)."""

    lower: int
    estimate: float
    upper: int

    @property
    def exact(self) -> bool:
        return self.lower == self.upper


def headroom(hist: ExponentHistogram, f: Format, scale: float = 1.0) -> float:
    """Binades between the largest value times scale and the largest value of the format."""
    if not hist.amax:
        return math.inf
    return math.log2(f.largest) - math.log2(hist.amax) - math.log2(scale)


def flushed(hist: ExponentHistogram, f: Format, scale: float = 1.0) -> Bounded:
    """Nonzero elements that, times scale, round to zero."""
    kept = count_above(hist, f.flush_threshold / scale, inclusive=False)
    return Bounded(hist.nonzero - kept.upper, hist.nonzero - kept.estimate, hist.nonzero - kept.lower)


def is_blind(hist: ExponentHistogram, f: Format) -> bool:
    """Whether the recorded dtype may have flushed what the format would keep: it has zeros, and rounds to zero
    at least as early."""
    return hist.zeros > 0 and 0 < unseen_below(hist) >= f.flush_threshold


def overflowing(hist: ExponentHistogram, f: Format, scale: float) -> Bounded:
    """Finite elements that, times scale, round beyond the largest value of the format."""
    if f.overflow_threshold == 65520.0 and scale == 1.0 and hist.ge_65520_exact:
        return Bounded(hist.ge_65520, hist.ge_65520, hist.ge_65520)
    return count_above(hist, f.overflow_threshold / scale, inclusive=f.overflow_at_threshold)


def count_above(hist: ExponentHistogram, limit: float, *, inclusive: bool) -> Bounded:
    """Elements with |x| > limit (>= if inclusive). amax and amin_nonzero narrow the bounds of the binade that the
    limit cuts. At a binade's edge, elements equal to the limit count as above it (all but amax, which is known)."""
    nonzero = hist.nonzero
    if limit == 0 or nonzero == 0:
        return Bounded(nonzero, nonzero, nonzero)
    if math.isinf(limit):
        return Bounded(0, 0, 0)
    above = _compare(hist.amax, limit, inclusive, unknown=True)
    if not above:
        return Bounded(0, 0, 0)
    if hist.amin_nonzero is not None and _compare(hist.amin_nonzero, limit, inclusive, unknown=False):
        return Bounded(nonzero, nonzero, nonzero)
    e = max(HIST_MIN, math.frexp(limit)[1] - 1)
    if e - HIST_MIN >= len(hist.counts):
        return Bounded(0, 0, 0)
    beyond = int(hist.counts[e + 1 - HIST_MIN :].sum())
    cut = int(hist.counts[e - HIST_MIN])
    if limit == math.ldexp(1.0, e) and e > HIST_MIN:
        return Bounded(beyond + cut, beyond + cut, beyond + cut)
    lower, upper = beyond, beyond + cut
    if cut and hist.amax is not None and not beyond:
        lower += 1  # amax is above the limit and can only be in this binade
    below = int(hist.counts[: e - HIST_MIN].sum())
    if cut and hist.amin_nonzero is not None and not below:
        upper -= 1  # likewise amin_nonzero, below it
    estimate = beyond + cut * (e + 1 - math.log2(limit) if e > HIST_MIN else 0.5)
    return Bounded(lower, min(max(estimate, lower), upper), upper)


def _compare(value: float | None, limit: float, inclusive: bool, unknown: bool) -> bool:
    if value is None:
        return unknown
    return value >= limit if inclusive else value > limit


def unseen_below(hist: ExponentHistogram) -> float:
    """Largest magnitude that the recorded dtype rounds to zero (0 when its format is not known)."""
    f = FORMATS.get(hist.dtype)
    return 0.0 if f is None else f.flush_threshold


def check_scale(scale: float) -> None:
    """ValueError unless scale is a positive finite number."""
    if not (math.isfinite(scale) and scale > 0):
        raise ValueError(f"a scale must be a positive finite number, not {scale}.")


def check_histogram(hist: object) -> None:
    """ValueError unless hist is an ExponentHistogram."""
    if not isinstance(hist, ExponentHistogram):
        raise ValueError(
            f"an ExponentHistogram is needed, not a {type(hist).__name__}: use exponent_histogram()."
        )
