"""The loss curves of two runs, side by side by step."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pandas as pd

from ampscope.compare.rounding import relative
from ampscope.diagnose.signals import TraceView

_QUERY = """
SELECT step, avg(loss) AS loss FROM steps
WHERE loss IS NOT NULL AND outcome IN ('stepped', 'skipped') GROUP BY step ORDER BY step
"""


@dataclass(frozen=True)
class Curves:
    """The losses at the steps that both runs have: `steps`, and `one` and `two` at them, NaN and inf kept."""

    steps: tuple[int, ...] = ()
    one: tuple[float, ...] = ()
    two: tuple[float, ...] = ()

    @property
    def distance(self) -> float | None:
        """Mean |one - two| over mean |one|, at the steps where both are finite; None without one."""
        both = [
            (a, b) for a, b in zip(self.one, self.two, strict=True) if math.isfinite(a) and math.isfinite(b)
        ]
        size = sum(abs(a) for a, _ in both)
        return sum(abs(a - b) for a, b in both) / size if size > 0 else None

    def first_apart(self, tolerance: float) -> int | None:
        """The first step at which they differ by more than `tolerance`, relative to the larger; None: nowhere."""
        for step, a, b in zip(self.steps, self.one, self.two, strict=True):
            if relative(a, b) > tolerance:
                return step
        return None

    def at(self, step: int) -> tuple[float, float]:
        index = self.steps.index(step)
        return self.one[index], self.two[index]


def curves(one: TraceView, two: TraceView) -> Curves:
    """The loss curves of two traces."""
    both = _losses(one).merge(_losses(two), on="step", suffixes=("_one", "_two")).sort_values("step")
    return Curves(
        tuple(int(s) for s in both["step"]),
        tuple(float(x) for x in both["loss_one"]),
        tuple(float(x) for x in both["loss_two"]),
    )


def _losses(trace: TraceView) -> pd.DataFrame:
    return trace.sql(_QUERY)
