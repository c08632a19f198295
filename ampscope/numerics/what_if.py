"""What a stored histogram says about another format or loss scale: flushed, subnormal, overflow, headroom.

From histograms alone: no tensor is needed, so any recorded step can be asked again. Flushed and subnormal are
two things and are never added: a flushed value is lost, a subnormal one keeps fewer bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .binades import ExponentHistogram
from .bounds import (
    check_histogram,
    check_scale,
    count_above,
    flushed,
    headroom,
    is_blind,
    overflowing,
    unseen_below,
)
from .formats import Format, of_dtype
from .loss_scale import LossScaleTrajectory, ScaleWindow, TensorWindow, scale_window, simulate_loss_scale

__all__ = [
    "LossScaleTrajectory",
    "ScaleWindow",
    "TensorWindow",
    "WhatIf",
    "scale_window",
    "simulate_loss_scale",
    "what_if",
]


@dataclass(frozen=True)
class WhatIf:
    """Elements of one histogram, times `scale`, in `format`.

    flushed: nonzero values that round to zero; subnormal: those below the smallest normal that do not;
    overflow: finite values that become infinite (or NaN, or saturate: see the format). Each is an estimate,
    with `_lower` and `_upper` bounds; `exact` when all bounds meet: at power-of-two scales, but for values
    exactly on a binade's edge, where one of the thresholds is (2^-25 / scale for fp16; counted as kept).
    Values that the recorded dtype flushed before they were seen are in no count: `unseen_below` is the largest
    magnitude that it rounds to zero. `blind`: that is no finer than the format asked about and there are
    zeros, so that flushed is a lower bound, and so is what a higher scale would save.
    headroom_binades: log2(largest / (amax * scale)), negative when the largest value overflows, infinite when
    nothing is nonzero.
    """

    format: str
    scale: float
    nonzero: int
    nonfinite: int
    flushed: int
    flushed_lower: int
    flushed_upper: int
    subnormal: int
    subnormal_lower: int
    subnormal_upper: int
    overflow: int
    overflow_lower: int
    overflow_upper: int
    headroom_binades: float
    unseen_below: float
    blind: bool

    @property
    def exact(self) -> bool:
        """Whether the bounds meet for all three counts."""
        return (
            self.flushed_lower == self.flushed_upper
            and self.subnormal_lower == self.subnormal_upper
            and self.overflow_lower == self.overflow_upper
        )

    @property
    def flushed_share(self) -> float:
        """flushed / nonzero; 0 when nothing is nonzero."""
        return self._share(self.flushed)

    @property
    def subnormal_share(self) -> float:
        """subnormal / nonzero; 0 when nothing is nonzero."""
        return self._share(self.subnormal)

    @property
    def overflow_share(self) -> float:
        """overflow / nonzero; 0 when nothing is nonzero."""
        return self._share(self.overflow)

    def _share(self, count: int) -> float:
        return count / self.nonzero if self.nonzero else 0.0


def what_if(hist: ExponentHistogram, fmt: str | torch.dtype | Format, scale: float = 1.0) -> WhatIf:
    """How the elements of `hist`, multiplied by `scale`, fare in a format.

    Raises ValueError for an unknown format, a scale that is not a positive finite number, or what is not a
    histogram of this layout.
    """
    f = of_dtype(fmt)
    check_histogram(hist)
    check_scale(scale)
    lost = flushed(hist, f, scale)
    normal = count_above(hist, f.min_normal / scale, inclusive=True)
    over = overflowing(hist, f, scale)
    nonzero = hist.nonzero
    small = round(nonzero - normal.estimate)
    return WhatIf(
        format=f.name,
        scale=float(scale),
        nonzero=nonzero,
        nonfinite=hist.nonfinite,
        flushed=round(lost.estimate),
        flushed_lower=lost.lower,
        flushed_upper=lost.upper,
        subnormal=max(0, small - round(lost.estimate)),
        subnormal_lower=max(0, nonzero - normal.upper - lost.upper),
        subnormal_upper=max(0, nonzero - normal.lower - lost.lower),
        overflow=round(over.estimate),
        overflow_lower=over.lower,
        overflow_upper=over.upper,
        headroom_binades=headroom(hist, f, scale),
        unseen_below=unseen_below(hist),
        blind=is_blind(hist, f),
    )
