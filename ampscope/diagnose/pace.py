"""What sets the pace of the steps: the share of input, of the device, of waiting, with and without autocast.

Reads step times of the pulse level only, since sampled steps hold the time of sampling as well.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from ampscope.diagnose.frames import number, records, text
from ampscope.diagnose.signals import Signals

WARM = 3
"""Steps at the start that are left out: allocation, tuning, compilation."""


@dataclass(frozen=True)
class Pace:
    """Median seconds of the steps of one optimizer under one autocast dtype (None: without)."""

    opt: str
    dtype: str | None
    steps: int
    duration_s: float


def plain_steps(s: Signals) -> pd.DataFrame:
    """The steps taken at the pulse level, without the first ones of the run."""
    rows = s.steps
    rows = rows[rows["level"].eq("pulse") & rows["outcome"].isin(["stepped", "skipped"])]
    return rows[rows["segment"].ge(WARM) & rows["duration_s"].gt(0.0)]


def paces_of(s: Signals) -> tuple[Pace, ...]:
    """Median step times by optimizer and autocast dtype, in order."""
    groups: dict[tuple[str, str | None], list[float]] = {}
    for r in records(plain_steps(s)):
        key = (text(r["opt"]) or "", text(r["autocast_dtype"]))
        groups.setdefault(key, []).append(number(r["duration_s"]) - number(r["own_s"]))
    made = [Pace(opt, dtype, len(t), statistics.median(t)) for (opt, dtype), t in groups.items()]
    return tuple(sorted(made, key=lambda p: (p.opt, p.dtype or "")))


def compared(paces: Sequence[Pace], least: int) -> tuple[Pace, Pace] | None:
    """(without autocast, with it) for the optimizer that ran both ways for long enough; None for none."""
    known = [p for p in paces if p.steps >= least]
    for low in known:
        for full in known:
            if low.dtype is not None and full.dtype is None and low.opt == full.opt:
                return full, low
    return None
