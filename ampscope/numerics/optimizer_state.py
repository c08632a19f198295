"""What half precision does to an optimizer's own arithmetic: the second moment against eps, decay that rounds
away, and whether small updates of half-stored weights survive by stochastic rounding or compensation.

Pure arithmetic on histograms and on weights before and after; who calls it knows the optimizer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from .binades import ExponentHistogram
from .bounds import check_histogram, count_above
from .formats import Format, of_dtype, power_of_two, round_to


@dataclass(frozen=True)
class SecondMoment:
    """exp_avg_sq of one parameter against eps. Counts are elements.

    eps_stored: eps as the state's dtype holds it (0: it vanishes, and 0/0 is NaN where v is 0); zeros: v = 0;
    subnormal: v below the dtype's smallest normal, not zero; below_eps: v / bias_correction < eps^2, so that
    eps decides the step instead of the gradient (estimate with bounds, zeros included).
    """

    finite: int
    eps: float
    eps_stored: float
    zeros: int
    subnormal: int
    below_eps: int
    below_eps_lower: int
    below_eps_upper: int

    @property
    def eps_vanishes(self) -> bool:
        return self.eps > 0 and self.eps_stored == 0

    @property
    def below_eps_share(self) -> float:
        """below_eps / finite; 0 without elements."""
        return self.below_eps / self.finite if self.finite else 0.0


def second_moment(
    exp_avg_sq: ExponentHistogram, eps: float, dtype: str | torch.dtype | Format, bias_correction: float = 1.0
) -> SecondMoment:
    """Judge a histogram of exp_avg_sq (Adam, AdamW), square_avg (RMSprop) or the like.

    dtype: in which the state is stored and eps is added; bias_correction: 1 - beta2^step (Kingma & Ba 2015,
    algorithm 1). Raises ValueError for a negative eps, a bias_correction outside 0..1 or an unknown dtype.
    """
    check_histogram(exp_avg_sq)
    f = of_dtype(dtype)
    if not eps >= 0:
        raise ValueError(f"eps must not be negative, but is {eps}.")
    if not 0 < bias_correction <= 1:
        raise ValueError(f"bias_correction is 1 - beta2^step, between 0 and 1, not {bias_correction}.")
    h = exp_avg_sq
    above = count_above(h, eps * eps * bias_correction, inclusive=True)
    normal = count_above(h, f.min_normal, inclusive=True)
    zeros_below = h.zeros if eps > 0 else 0
    return SecondMoment(
        finite=h.finite,
        eps=eps,
        eps_stored=round_to(eps, f),
        zeros=h.zeros,
        subnormal=h.nonzero - round(normal.estimate),
        below_eps=h.nonzero - round(above.estimate) + zeros_below,
        below_eps_lower=h.nonzero - above.upper + zeros_below,
        below_eps_upper=h.nonzero - above.lower + zeros_below,
    )


def decay_absorbed(decay: float, dtype: str | torch.dtype | Format) -> float:
    """Share of normal values x for which decay * x rounds back to x, so that a running average never decays.

    decay: beta2, EMA decay, 0..1. x is absorbed when (1 - decay) |x| is at most half an ulp, that is while its
    significand is below 2^-precision / (1 - decay); the share is over significands spread evenly in log2.
    0.999 in bfloat16 gives 1, in float16 (11 bits) 0.
    """
    f = of_dtype(dtype)
    if not 0 <= decay <= 1:
        raise ValueError(f"a decay lies between 0 and 1, not {decay}.")
    if decay == 1:
        return 1.0
    return min(1.0, max(0.0, -f.precision - math.log2(1 - decay)))


@dataclass(frozen=True)
class RoundingEvidence:
    """Whether half-stored weights move where rounding to nearest would hold them still.

    typical_update: median |dw| of one step over elements with ulp at most an eighth of it, where it is known
    to 1/16 (None when fewer than 20 are that fine); coarse: elements with ulp > 16 typical updates, which
    nearest rounding hardly moves; coarse_moved: how many of them did; expected_moves: how many would at least,
    if small updates survive: the sum of sqrt(steps) typical_update / ulp, at most 1 each.
    """

    typical_update: float | None
    coarse: int
    coarse_moved: int
    expected_moves: float

    @property
    def survives(self) -> bool | None:
        """True: stochastic rounding or compensation is at work; False: nearest rounding absorbs; None: fewer
        than 20 moves would be expected either way, so nothing can be said."""
        if self.typical_update is None or self.expected_moves < 20:
            return None
        return self.coarse_moved > 0.25 * self.expected_moves


def rounding_evidence(
    before: torch.Tensor, after: torch.Tensor, steps: int = 1, typical_update: float | None = None
) -> RoundingEvidence:
    """Compare weights stored in float16 or bfloat16 before and after one step or several.

    Stochastic rounding shows in one step. Compensated (Kahan) sums hold back until small updates add up to
    half an ulp: compare over `steps` steps, with the typical_update that a single step gave. Raises ValueError
    for other dtypes, and for several steps without typical_update.
    """
    if before.shape != after.shape or before.dtype != after.dtype:
        raise ValueError("before and after must have the same shape and dtype: take both from one parameter.")
    if before.dtype not in (torch.float16, torch.bfloat16):
        raise ValueError(f"rounding is judged on float16 or bfloat16 weights, not {before.dtype}.")
    if steps > 1 and typical_update is None:
        raise ValueError(
            "over several steps the typical_update of a single one is needed: compare one step first."
        )
    f = of_dtype(before.dtype)
    w, new = (x.detach().to("cpu", torch.float64).reshape(-1) for x in (before, after))
    there = w.isfinite() & new.isfinite() & (w != 0)
    w, new = w[there], new[there]
    exponent = torch.frexp(w).exponent.to(torch.int64) - 1
    ulp = power_of_two(exponent.clamp(min=f.emin) - f.precision + 1)
    dw = (new - w).abs()
    typical = _typical(dw, ulp) if typical_update is None else typical_update
    if typical is None:
        return RoundingEvidence(None, 0, 0, 0.0)
    coarse = ulp > 16 * typical
    expected = (typical * math.sqrt(steps) / ulp[coarse]).clamp(max=1.0).sum()
    return RoundingEvidence(typical, int(coarse.sum()), int((coarse & (dw > 0)).sum()), float(expected))


def _typical(dw: torch.Tensor, ulp: torch.Tensor) -> float | None:
    fine = dw >= 8 * ulp
    for _ in range(4):
        # The first choice favours large updates; choosing by ulp alone, at the size found so far, does not.
        if int(fine.sum()) < 20:
            return None
        typical = float(dw[fine].median())
        fine = ulp <= typical / 8
    return typical or None
