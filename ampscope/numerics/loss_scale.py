"""Loss scales: the window in which gradients neither overflow nor flush, which tensor closes it on each side,
and a replay of dynamic loss scaling over recorded gradient maxima.

All inputs are true (unscaled) gradients.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from .binades import HIST_MIN, ExponentHistogram
from .bounds import check_histogram, flushed, is_blind
from .formats import Format, of_dtype

SMALLEST_EXPONENT, LARGEST_EXPONENT = -126, 127
"""Loss scales are float32: powers of two in this range are tried."""


@dataclass(frozen=True)
class TensorWindow:
    """Power-of-two scales that suit one tensor. lo: the smallest at which at most eps of its nonzero values are
    flushed (0 when none is too small); hi: the largest at which none overflows (inf when none is too large)."""

    name: str
    lo: float
    hi: float
    blind: bool


@dataclass(frozen=True)
class ScaleWindow:
    """Power-of-two loss scales at which no tensor overflows and each flushes at most eps of its nonzero values.

    lo, hi: ends of the window (hi < lo when there is none, `feasible` False); closes_low: the tensor that
    forbids a lower scale, closes_high: the one that forbids a higher one (None where nothing does). best: a
    scale to start from: two binades below hi where the window allows, else as near as it does; without a
    window the largest scale that does not overflow. `blind` names tensors whose recorded dtype may have
    flushed values before they were seen: for them lo may be too low, and what a higher scale saves is a lower
    bound. `action` is the next step in one sentence.
    """

    format: str
    eps: float
    lo: float
    hi: float
    closes_low: str | None
    closes_high: str | None
    best: float | None
    feasible: bool
    blind: tuple[str, ...]
    tensors: tuple[TensorWindow, ...]
    action: str


def scale_window(
    named_histograms: Mapping[str, ExponentHistogram],
    fmt: str | torch.dtype | Format = "fp16",
    eps: float = 1e-3,
) -> ScaleWindow:
    """Feasible loss scales for histograms of unscaled gradients, by tensor name.

    eps: share of a tensor's nonzero values that may flush. Raises ValueError for an unknown format, an eps
    outside 0..1, or no histogram at all.
    """
    f = of_dtype(fmt)
    if not 0 <= eps <= 1:
        raise ValueError(f"eps is a share of elements between 0 and 1, not {eps}.")
    if not named_histograms:
        raise ValueError("a window of loss scales needs at least one histogram.")
    tensors = tuple(_window_of(name, hist, f, eps) for name, hist in named_histograms.items())
    low = max(tensors, key=lambda t: t.lo)
    high = min(tensors, key=lambda t: t.hi)
    closes_low = low.name if low.lo > 0 else None
    closes_high = high.name if not math.isinf(high.hi) else None
    feasible = low.lo <= high.hi
    best: float | None = None
    if not math.isinf(high.hi):
        best = max(high.hi / 4, low.lo) if feasible else high.hi
    elif low.lo > 0:
        best = low.lo
    return ScaleWindow(
        f.name, eps, low.lo, high.hi, closes_low, closes_high, best, feasible,
        tuple(t.name for t in tensors if t.blind), tensors, _action(f, feasible, best, closes_low, closes_high),
    )  # fmt: skip


def _window_of(name: str, hist: ExponentHistogram, f: Format, eps: float) -> TensorWindow:
    check_histogram(hist)
    return TensorWindow(name, _lowest_scale(hist, f, eps), _highest_scale(hist, f), is_blind(hist, f))


def _lowest_scale(hist: ExponentHistogram, f: Format, eps: float) -> float:
    allowed = math.floor(eps * hist.nonzero)
    below = np.cumsum(hist.counts)
    # The first bin that may not be flushed whole must start at the flush threshold or above.
    first = int(np.searchsorted(below, allowed, side="right"))
    if first >= len(hist.counts) or f.flush_threshold == 0:
        return 0.0
    k = math.frexp(f.flush_threshold)[1] - 1 - (first + HIST_MIN)
    if k <= LARGEST_EXPONENT and flushed(hist, f, math.ldexp(1.0, k)).estimate > allowed:
        k += 1  # the largest value itself lies on the edge
    return math.ldexp(1.0, min(max(k, SMALLEST_EXPONENT), LARGEST_EXPONENT))


def _highest_scale(hist: ExponentHistogram, f: Format) -> float:
    if not hist.amax or math.isinf(f.overflow_threshold):
        return math.inf
    k = math.floor(math.log2(f.overflow_threshold) - math.log2(hist.amax)) + 1
    while _overflows(math.ldexp(hist.amax, k), f):
        k -= 1
    return math.ldexp(1.0, min(max(k, SMALLEST_EXPONENT), LARGEST_EXPONENT))


def _overflows(x: float, f: Format) -> bool:
    return x >= f.smallest_overflow


def _action(f: Format, feasible: bool, best: float | None, low: str | None, high: str | None) -> str:
    if best is None:
        return "Nothing nonzero was recorded: no loss scale is better than another."
    if feasible:
        return f"Start from a loss scale of {best:g}."
    return (
        f"No loss scale suits both {low} (flushes below the window) and {high} (overflows above it) in {f.name}: "
        f"use bfloat16, or keep one of the two in float32."
    )


@dataclass(frozen=True)
class LossScaleTrajectory:
    """A replay. scales: the scale in force at each step (float32 values); skipped: whether that step would have
    been skipped; flushed: share of nonzero gradients flushed at that step (None where there is no histogram);
    final_scale: the scale after the last step."""

    scales: tuple[float, ...]
    skipped: tuple[bool, ...]
    flushed: tuple[float | None, ...]
    final_scale: float

    @property
    def n_skipped(self) -> int:
        return sum(self.skipped)

    @property
    def skip_rate(self) -> float:
        """Skipped steps / steps; 0 without steps."""
        return self.n_skipped / len(self.skipped) if self.skipped else 0.0

    @property
    def mean_flushed(self) -> float | None:
        """Mean flushed share of the steps taken; None when no taken step has a histogram."""
        known = [x for x, s in zip(self.flushed, self.skipped, strict=True) if x is not None and not s]
        return math.fsum(known) / len(known) if known else None


def simulate_loss_scale(
    amax_per_step: Sequence[float | None],
    hist_per_step: Sequence[ExponentHistogram | None] | None = None,
    init_scale: float = 65536.0,
    growth_factor: float = 2.0,
    backoff_factor: float = 0.5,
    growth_interval: int = 2000,
    fmt: str | torch.dtype | Format = "fp16",
) -> LossScaleTrajectory:
    """Replay torch.amp.GradScaler over recorded steps.

    amax_per_step: the largest |true gradient| of each step over all tensors that are in the format at any
    time (activation gradients included); None: no gradient, never overflows; NaN or inf: overflows at every
    scale. A step is skipped when amax * scale rounds beyond the format's largest value. The scale follows
    torch's `_amp_update_scale_`, in float32: times backoff_factor after a skip, times growth_factor after
    growth_interval steps without one, unless that overflows float32. Raises ValueError for parameters that
    GradScaler refuses, or for histograms that are not one per step.
    """
    f = of_dtype(fmt)
    _check_policy(init_scale, growth_factor, backoff_factor, growth_interval)
    if hist_per_step is not None and len(hist_per_step) != len(amax_per_step):
        raise ValueError(f"{len(hist_per_step)} histograms do not match {len(amax_per_step)} steps.")
    scale = float(np.float32(init_scale))
    tracker = 0
    scales, skipped, shares = [], [], []
    for step, amax in enumerate(amax_per_step):
        hist = None if hist_per_step is None else hist_per_step[step]
        skip = amax is not None and (not math.isfinite(amax) or _overflows(amax * scale, f))
        scales.append(scale)
        skipped.append(skip)
        shares.append(_flushed_share(hist, f, scale))
        if skip:
            scale, tracker = float(np.float32(scale * backoff_factor)), 0
            continue
        tracker += 1
        if tracker == growth_interval:
            tracker = 0
            with np.errstate(over="ignore"):
                grown = float(np.float32(scale * growth_factor))
            scale = grown if math.isfinite(grown) else scale
    return LossScaleTrajectory(tuple(scales), tuple(skipped), tuple(shares), scale)


def _flushed_share(hist: ExponentHistogram | None, f: Format, scale: float) -> float | None:
    if hist is None or scale == 0:
        return None
    check_histogram(hist)
    return flushed(hist, f, scale).estimate / hist.nonzero if hist.nonzero else 0.0


def _check_policy(
    init_scale: float, growth_factor: float, backoff_factor: float, growth_interval: int
) -> None:
    if not (math.isfinite(init_scale) and init_scale > 0):
        raise ValueError(f"init_scale must be a positive finite number, not {init_scale}.")
    if not (math.isfinite(growth_factor) and growth_factor > 1):
        raise ValueError(f"growth_factor must be greater than 1, not {growth_factor}.")
    if not 0 < backoff_factor < 1:
        raise ValueError(f"backoff_factor must lie between 0 and 1, not {backoff_factor}.")
    if growth_interval < 1:
        raise ValueError(f"growth_interval must be at least 1 step, not {growth_interval}.")
