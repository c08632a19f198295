"""The course of a run: how its loss, its weights and its activations grew before it went wrong. Describes; whether
that is a fault is for the rules to say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ampscope.diagnose.signals import Signals
from ampscope.diagnose.troubles import troubles_of

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Course:
    """The steps of one process in order. `losses` is NaN where no loss is known; `failed_at` is the place of the first
    step that went wrong outside the search for the loss scale, None when none did."""

    rank: int
    proc: int
    steps: NDArray[np.int64]
    losses: Array
    failed_at: int | None

    @property
    def before(self) -> Array:
        """The finite losses up to the failure."""
        known = self.losses[: self.failed_at]
        return known[np.isfinite(known)]


def courses(s: Signals) -> Iterator[Course]:
    """One course per process that has a few losses."""
    troubles = troubles_of(s)
    for key, rows in s.steps.groupby(["rank", s.steps["proc"].fillna(0)], sort=True):
        rank, proc = (int(float(str(k))) for k in tuple(key))
        losses = np.abs(rows["loss"].to_numpy(dtype=float, na_value=np.nan))
        failed = None
        for place, segment in enumerate(rows["segment"]):
            trouble = troubles.get((rank, proc, int(segment)))
            if trouble is not None and not trouble.searching and trouble.outcome != "cut_off":
                failed = place
                break
        yield Course(rank, proc, rows["step"].to_numpy(dtype=np.int64), losses, failed)


def growth(losses: Array, window: int) -> tuple[float, int]:
    """(how many times the last losses exceed what the loss was before, over how many steps it rose).

    The loss before is the median of the first half; the last one counts as it is. The rise is the run of steps at
    the end that are above twice that median, with the step before them.
    """
    if len(losses) < 2:
        return 1.0, 0
    half = max(1, min(window, len(losses) // 2))
    usual = float(np.median(losses[:half]))
    if usual <= 0.0:
        return 1.0, 0
    high = losses > 2.0 * usual
    rise = 0
    while rise < len(losses) and high[len(losses) - 1 - rise]:
        rise += 1
    return float(losses[-max(rise, 1) :].max()) / usual, rise


def largest_by_step(rows: pd.DataFrame, until: int | None = None) -> pd.Series[float]:
    """The largest |x| per step of rows of the table tensors, up to a step."""
    known = rows[rows["amax"].notna() & np.isfinite(rows["amax"].astype(float))]
    if until is not None:
        known = known[known["step"].le(until)]
    return known.groupby("step", sort=True)["amax"].max()


@dataclass(frozen=True)
class Moved:
    """What the optimizer did to the weights: growth of their Euclidean norm, and the largest update as a multiple of
    the weights it was added to."""

    growth: float
    update: float


def weight_growth(s: Signals, rank: int, until: int) -> Moved | None:
    """From the first sampled step to the last one up to `until`, its update included; None without a sample."""
    updates = s.updates[s.updates["rank"].eq(rank) & s.updates["step"].le(until)]
    norms = updates[["step", "weight_norm", "update_norm"]].dropna()
    norms = norms[np.isfinite(norms["weight_norm"]) & np.isfinite(norms["update_norm"])]
    if norms.empty:
        return None
    by_step = norms.groupby("step", sort=True).agg(lambda x: float(np.sqrt((x.astype(float) ** 2).sum())))
    weights, steps = by_step["weight_norm"].to_numpy(float), by_step["update_norm"].to_numpy(float)
    if weights[0] <= 0.0:
        return None
    after = float(np.hypot(weights[-1], steps[-1]))
    return Moved(after / float(weights[0]), float((steps / np.maximum(weights, 1e-30)).max()))
