"""The exponent histogram as data: what is counted, and how counts add up and move under a power-of-two scale.

Knows nothing of tensors or devices; `chunks` and `rows` fill it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

HIST_MIN = -127
"""Exponent of the first bin: bin e counts finite nonzero |x| in [2^e, 2^(e+1)). Bin -127 holds everything
below 2^-126 (the float32 subnormals), bin 128 everything from 2^128 upwards (float64 only)."""

HIST_BINS = 256
HIST_MAX = HIST_MIN + HIST_BINS - 1


@dataclass(frozen=True, eq=False)
class ExponentHistogram:
    """Counts per binade and exact counters of one tensor, or of the sum of several.

    counts: int64[256], index e + 127. Counters are numbers of elements; amax is the largest finite |x| (None
    when no element is finite), amin_nonzero the smallest finite nonzero |x| (None when there is none); sum,
    sumsq and sumabs run over the finite elements and accumulate in float64. Complex elements count as two.
    ge_65520_exact is False after a `shift` that left only a lower bound of ge_65520.
    """

    counts: NDArray[np.int64]
    numel: int
    zeros: int
    nan: int
    posinf: int
    neginf: int
    ge_65520: int
    amax: float | None
    amin_nonzero: float | None
    sum: float
    sumsq: float
    sumabs: float
    dtype: str
    ge_65520_exact: bool = True

    def __post_init__(self) -> None:
        counts = np.asarray(self.counts)
        if counts.shape != (HIST_BINS,) or counts.dtype.kind not in "iu":
            raise ValueError(
                f"an exponent histogram has {HIST_BINS} integer bins for exponents {HIST_MIN}..{HIST_MAX}, "
                f"not {counts.dtype} of shape {counts.shape}."
            )
        counts = counts.astype(np.int64)
        counts.setflags(write=False)
        object.__setattr__(self, "counts", counts)

    @classmethod
    def empty(cls, dtype: str = "float32") -> ExponentHistogram:
        """The histogram of no elements: the identity of `merge`."""
        return cls(np.zeros(HIST_BINS, np.int64), 0, 0, 0, 0, 0, 0, None, None, 0.0, 0.0, 0.0, dtype)

    @classmethod
    def from_trimmed(
        cls,
        hist_lo: int,
        hist: Sequence[int],
        *,
        numel: int,
        zeros: int = 0,
        nan: int = 0,
        posinf: int = 0,
        neginf: int = 0,
        ge_65520: int = 0,
        amax: float | None = None,
        amin_nonzero: float | None = None,
        sum: float = math.nan,
        sumsq: float = math.nan,
        sumabs: float = math.nan,
        dtype: str = "float32",
    ) -> ExponentHistogram:
        """Rebuild from the stored columns `hist_lo`, `hist` and the counters of the `tensors` table.

        Raises ValueError when the bins do not fit 256 bins from -127, or do not add up to the counters.
        """
        lo = int(hist_lo) - HIST_MIN
        bins = np.asarray(hist, dtype=np.int64).reshape(-1)
        if lo < 0 or lo + len(bins) > HIST_BINS:
            raise ValueError(
                f"the histogram covers exponents {hist_lo}..{hist_lo + len(bins) - 1}, outside the "
                f"{HIST_MIN}..{HIST_MAX} of this layout: it was written by another schema."
            )
        counts = np.zeros(HIST_BINS, np.int64)
        counts[lo : lo + len(bins)] = bins
        made = cls(
            counts, int(numel), int(zeros), int(nan), int(posinf), int(neginf), int(ge_65520),
            amax, amin_nonzero, sum, sumsq, sumabs, dtype,
        )  # fmt: skip
        if bins.min(initial=0) < 0 or made.nonzero + made.zeros + made.nonfinite != made.numel:
            raise ValueError(
                f"the histogram's bins and counters add up to {made.nonzero + made.zeros + made.nonfinite} "
                f"elements where numel says {made.numel}: it is damaged or of another layout."
            )
        return made

    @property
    def nonzero(self) -> int:
        """Finite nonzero elements: what the bins hold."""
        return int(self.counts.sum())

    @property
    def nonfinite(self) -> int:
        """NaN and infinities."""
        return self.nan + self.posinf + self.neginf

    @property
    def finite(self) -> int:
        """Finite elements, zeros included."""
        return self.numel - self.nonfinite

    @property
    def mean(self) -> float:
        """Mean of the finite elements; NaN when there is none."""
        return self.sum / self.finite if self.finite else math.nan

    @property
    def variance(self) -> float:
        """Population variance of the finite elements, sumsq/n - mean^2, never negative; NaN without any.

        Its absolute error is about 2^-52 * log2(n) * sumsq/n: small against the variance unless
        |mean| exceeds the standard deviation by more than about 10^6.
        """
        if not self.finite:
            return math.nan
        return max(0.0, self.sumsq / self.finite - self.mean**2)

    def merge(self, other: ExponentHistogram) -> ExponentHistogram:
        """Histogram of both sets of elements. Commutative, associative (float sums to rounding).

        dtype is kept when equal (an empty side does not count) and "mixed" otherwise.
        """
        dtype = self.dtype
        if other.numel and other.dtype != dtype:
            dtype = "mixed" if self.numel else other.dtype
        return ExponentHistogram(
            self.counts + other.counts,
            self.numel + other.numel,
            self.zeros + other.zeros,
            self.nan + other.nan,
            self.posinf + other.posinf,
            self.neginf + other.neginf,
            self.ge_65520 + other.ge_65520,
            _largest(self.amax, other.amax),
            _smallest(self.amin_nonzero, other.amin_nonzero),
            self.sum + other.sum,
            self.sumsq + other.sumsq,
            self.sumabs + other.sumabs,
            dtype,
            self.ge_65520_exact and other.ge_65520_exact,
        )

    def shift(self, k: int) -> ExponentHistogram:
        """Histogram of the elements times 2^k, as if computed without rounding.

        Exact in every bin but the two ends: what leaves the range piles up in the first or last bin, and
        elements of the first bin, whose magnitude is only known to be below 2^-126, move as if they lay in
        [2^-127, 2^-126). ge_65520 becomes a lower bound where the bin of 65520 holds other than the largest.
        """
        if k == 0:
            return self
        source = np.arange(HIST_BINS)
        counts = np.zeros(HIST_BINS, np.int64)
        np.add.at(counts, np.clip(source + int(k), 0, HIST_BINS - 1), self.counts)
        amax = None if self.amax is None else _ldexp(self.amax, k)
        sure, unsure = int(counts[16 - HIST_MIN :].sum()), int(counts[15 - HIST_MIN])
        if amax is None or amax < 65520.0:
            unsure = 0
        elif amax < 65536.0:
            sure, unsure = 1, unsure - 1
        return replace(
            self,
            counts=counts,
            ge_65520=sure,
            ge_65520_exact=unsure == 0,
            amax=amax,
            amin_nonzero=None if self.amin_nonzero is None else _ldexp(self.amin_nonzero, k),
            sum=_ldexp(self.sum, k),
            sumsq=_ldexp(self.sumsq, 2 * k),
            sumabs=_ldexp(self.sumabs, k),
        )

    def trimmed(self) -> tuple[int, list[int]]:
        """(hist_lo, hist) as stored: first to last bin that is not empty; (0, []) if all are."""
        (used,) = self.counts.nonzero()
        if not len(used):
            return 0, []
        lo, hi = int(used[0]), int(used[-1]) + 1
        counts: list[int] = self.counts[lo:hi].tolist()
        return lo + HIST_MIN, counts

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ExponentHistogram):
            return NotImplemented
        return bool(np.array_equal(self.counts, other.counts)) and self._scalars() == other._scalars()

    def __hash__(self) -> int:
        return hash((self.counts.tobytes(), self._scalars()))

    def _scalars(self) -> tuple[object, ...]:
        return (
            self.numel, self.zeros, self.nan, self.posinf, self.neginf, self.ge_65520,
            self.amax, self.amin_nonzero, self.sum, self.sumsq, self.sumabs, self.dtype, self.ge_65520_exact,
        )  # fmt: skip


def _largest(*values: float | None) -> float | None:
    return max((v for v in values if v is not None), default=None)


def _smallest(*values: float | None) -> float | None:
    return min((v for v in values if v is not None), default=None)


def _ldexp(x: float, k: int) -> float:
    try:
        return math.ldexp(x, k)
    except OverflowError:
        return math.copysign(math.inf, x)
