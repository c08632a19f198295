"""Running sums kept in half precision: how they grew from census to census, whether they have stopped, and when they
will. Judges recorded writes by arithmetic; whose sums they are does not matter.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from ampscope.diagnose.increments import ULP, Write, groups, in_place, lost_share
from ampscope.diagnose.policy import Policy


@dataclass(frozen=True)
class RunningSum:
    """The writes of one sum at one line, in order. Sizes are those of its largest element."""

    writes: tuple[Write, ...]

    @property
    def last(self) -> Write:
        return self.writes[-1]

    @property
    def dtype(self) -> str:
        return self.last.dtype

    @property
    def top(self) -> float:
        """The largest size that was seen."""
        return max(size(w) for w in self.writes)

    @property
    def largest(self) -> tuple[Write, ...]:
        """The writes to it while it had at least half of its largest size: those that lose the most."""
        half = self.top / 2.0
        return tuple(w for w in self.writes if (w.op.in_amax or 0.0) >= half and size(w) >= half)

    @property
    def lost(self) -> float | None:
        """Share of the increments that were rounded away at its largest size; None where no op tells."""
        return lost_share(self.largest)


def size(write: Write) -> float:
    return write.op.out_amax or 0.0


def running_sums(writes: Sequence[Write], policy: Policy) -> list[RunningSum]:
    """The sums among writes of half values: they go on over steps or along a long chain, and they grow."""
    sums = [w for w in writes if w.weight is None]
    found = [RunningSum(tuple(g)) for g in groups(sums)]
    return [r for r in found if _grows(r, policy) and _kept(r.last) and not r.last.repaired]


def _kept(write: Write) -> bool:
    """It is stored for the next time, and no part of what is trained."""
    return in_place(write.op) or write.chained or not write.trained


def _grows(r: RunningSum, policy: Policy) -> bool:
    """It grew by more than chance, without shrinking on the way; a chain within one step may start anew each time."""
    ends: dict[int, float] = {}
    starts: dict[int, float] = {}
    for w in r.writes:
        starts.setdefault(w.flow.segment, size(w))
        ends[w.flow.segment] = size(w)
    low = min((x for x in map(size, r.writes) if x > 0.0), default=math.inf)
    if r.top < policy.sum_growth * low:
        return False
    if any(w.chained for w in r.writes):
        return all(ends[k] >= starts[k] for k in ends)
    path = list(ends.values())
    return all(a <= b for a, b in itertools.pairwise(path))


@dataclass(frozen=True)
class Forecast:
    """Where an evenly growing sum stops: at `stop`, in about `step` steps from the start of the run."""

    stop: float
    step: float
    increment: float


def forecast(r: RunningSum, steps: int, policy: Policy) -> Forecast | None:
    """When the sum stops if it goes on growing as it did from the start of the run; None if that lies beyond the run
    of `steps` steps, or if it did not grow evenly.

    An increment is lost once it is at most half an ulp: from increment * precision on, at the next power of two.
    """
    ends = {w.flow.segment: w for w in r.writes}
    if len(ends) < 2 or r.last.numel != 1:
        return None
    (first, low), (last, high) = min(ends.items()), max(ends.items())
    rate = (size(high) - size(low)) / (last - first)
    since_start = size(high) / (last + 1)
    gains = [size(w) - (w.op.in_amax or 0.0) for w in r.writes if size(w) > (w.op.in_amax or 0.0) > 0.0]
    if rate <= 0.0 or not gains or not 1 / policy.sum_drift <= rate / since_start <= policy.sum_drift:
        return None
    increment = statistics.median(gains)
    stop = 2.0 ** math.ceil(math.log2(increment * 2.0 / ULP[r.dtype]))
    return Forecast(stop, stop / rate, increment) if steps * rate >= policy.sum_margin * stop else None
