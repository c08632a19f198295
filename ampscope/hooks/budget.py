"""Decides how much is read in each segment, so that ampscope's own time stays within its share of wall time.

Knows nothing of tensors: it weighs measured cost against measured wall time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

GRACE_S = 1.0
"""Own seconds that a run may spend at once, ahead of its share: without it a run of a few seconds, which is what
most bug reports are, could not afford a single census."""

PULSES = 0.4
"""Part of the budget that the pulse may take. In a loop of millisecond steps the pulse of every step would cost more:
most segments are then only counted."""

COUNTS = 0.2
"""Part of the budget that counting may take; the rest is left for samples. Where it would cost more, ampscope rests."""

UNSEEN = 2.0
"""What a hook costs by what its own clock sees of it: the call itself, and what the script's code loses from the
caches, are as much again (measured on CPU for steps of 1 ms and of 15 ms: 1.6 to 2.3)."""

UNSEEN_OF_SAMPLES = 1.4
"""The same for segments of which more is read (steps of 1, 15 and 140 ms: 1.39 to 1.43)."""

LOOK_AGAIN = 64
"""Segments that are only counted in a row at most, whatever a pulse costs."""

LOOK_UP = 512
"""The same in a loop that rests."""

ASK_AGAIN = 16
"""Segments that are only counted before the budget is asked again, unless something is due earlier."""

ATTENTION = 8
"""Segments with a pulse after one that was skipped, thrown away or not finite."""

CENSUS_SEGMENTS = (0, 1, 7, 31)
"""Then every fourfold: 127, 511, ... A census costs 10 microseconds or more for each op."""

PROFILE_SEGMENTS = (3, 64, 1024)
"""Op times are due from here on: on the next segment that is free and in hand. It is theirs alone: under a census
every op time would be that of the census."""

SPREAD = 16
"""Samples thin out as 1/SPREAD of the index: what happens late changes slowly, and a trace stays small."""


def is_census(index: int) -> bool:
    """Segments 1, 2, 8, 32, 128, 512, ... counted from one."""
    if index in CENSUS_SEGMENTS:
        return True
    power = 127
    while power < index:
        power = power * 4 + 3
    return power == index


def is_milestone(index: int) -> bool:
    """Segments 1, 2, 4, 8, ... counted from one: read at the range level whatever the budget says, which costs
    a logarithm of the run."""
    return (index + 1) & index == 0


@dataclass
class Budget:
    """`share` is a fraction of wall time. `every` fixes the interval of the range level instead; census and
    profile then keep their schedule whatever they cost, so that the same command reads the same segments."""

    share: float
    every: int | None = None
    level: str = "watch"
    window: tuple[int, int | None] | None = None
    spent_s: float = 0.0
    pulses_s: float = 0.0
    counts_s: float = 0.0
    resting: bool = False
    """Even counting is more than the budget has."""
    writer_s: float | None = None
    last_cost: dict[str, float] = field(default_factory=dict)
    last_sampled: int = -1
    sample_level: str = ""
    """The level of that segment."""
    why: str = ""
    cycle_left: int = 0
    pulses_left: int = 0
    """Segments that get a pulse without being asked what it costs."""
    last_pulse: int = -1
    counted_until: int = -1
    """The first segment whose level has to be thought about again."""
    trouble: int = -ATTENTION
    """The last segment to which attention was due."""
    watched: bool = False
    """Every segment gets a pulse at least."""
    profiled: int = 0
    """How many of PROFILE_SEGMENTS have been answered."""

    def charge(self, level: str, own_s: float, writer_s: float = 0.0, late_s: float = 0.0) -> None:
        """Book what a finished segment cost at its level; `writer_s` is the time of the writer's thread so far. Of
        `own_s`, `late_s` went into what the last sample had left to be done."""
        own_s = (own_s - late_s) * (UNSEEN if level in ("pulse", "count", "rest") else UNSEEN_OF_SAMPLES)
        late_s *= UNSEEN_OF_SAMPLES
        self.spent_s += own_s + late_s
        self.last_cost[level] = own_s
        if late_s and self.sample_level in self.last_cost:
            self.last_cost[self.sample_level] += late_s
        if level == "pulse":
            self.pulses_s += own_s
        elif level in ("count", "rest"):
            self.counts_s += own_s
        if writer_s:
            # Its first reading holds what importing pyarrow took: no share could keep that down.
            self.spent_s += writer_s - (writer_s if self.writer_s is None else self.writer_s)
            self.writer_s = writer_s

    def attend(self, index: int) -> None:
        """Segment `index` was remarkable: look at the next ones, unless it is one more of a long row."""
        if index - self.trouble > ATTENTION:
            self.pulses_left = max(self.pulses_left, ATTENTION)
        self.trouble = index

    def choose(self, index: int, wall_s: float, optimizers: int, next_step: int) -> str:
        """The level of segment `index`: rest, count, pulse, range, census or profile. Sets `why`."""
        if index < self.counted_until and not self.watched and not self.pulses_left:
            return "count"
        level = self._choose(index, wall_s, optimizers, next_step)
        if level == "pulse" and not self._pulse(index, wall_s, optimizers):
            self.why = "budget"
            counts = ASK_AGAIN * self.last_cost.get("count", 0.0)
            self.resting = self.counts_s + counts > COUNTS * self._allowance(wall_s)
            if self.resting:
                return "rest"
            self.counted_until = min(index + ASK_AGAIN, self._due(index, next_step, LOOK_AGAIN))
            return "count"
        self.last_pulse = index
        return level

    def _due(self, index: int, next_step: int, look_again: int) -> int:
        """The first segment after `index` that needs a pulse or more, whatever that costs."""
        milestone = (1 << index.bit_length()) - 1
        if self.window is not None and next_step < self.window[0]:
            milestone = min(milestone, index + self.window[0] - next_step)
        return min(self.last_pulse + look_again + 1, milestone)

    def rest_segments(self, index: int, next_step: int) -> int:
        """How long a rest may be that begins with segment `index`, in step `next_step`."""
        return max(1, self._due(index, next_step, LOOK_UP) - index)

    def _pulse(self, index: int, wall_s: float, optimizers: int) -> bool:
        """Whether the segment gets a pulse. One that follows a counted segment comes with those of a whole round of
        the optimizers and one more: the first of each lacks what came before it."""
        if self.every is not None or self.watched or self.pulses_left > 0:
            self.pulses_left = max(0, self.pulses_left - 1)
            return True
        together = 1 if self.last_pulse == index - 1 else 2 * max(1, optimizers)
        cost = together * self.last_cost.get("pulse", 0.0)
        look_again = LOOK_UP if self.resting else LOOK_AGAIN
        if self.pulses_s + cost > PULSES * self._allowance(wall_s) and index - self.last_pulse <= look_again:
            return False
        self.pulses_left = together - 1
        return True

    def _allowance(self, wall_s: float) -> float:
        return max(GRACE_S, self.share * wall_s)

    def _choose(self, index: int, wall_s: float, optimizers: int, next_step: int) -> str:
        if self.level == "pulse":
            self.why = "level pulse"
            return "pulse"
        if self.window is not None and not self._in_window(next_step):
            self.why = "outside --steps"
            return "pulse"
        if self.cycle_left > 0 and self.last_level != "pulse":
            self.cycle_left -= 1
            self.why = "same cycle of optimizers"
            return self.last_level
        level = self._wanted(index, wall_s)
        self.last_level = level
        if level != "pulse":
            self.last_sampled = index
            self.sample_level = level
            self.cycle_left = max(0, optimizers - 1)
        return level

    last_level: str = "pulse"

    def _in_window(self, step: int) -> bool:
        assert self.window is not None
        first, last = self.window
        return step >= first and (last is None or step < last)

    def _wanted(self, index: int, wall_s: float) -> str:
        credit = math.inf if self.every is not None else self._allowance(wall_s) - self.spent_s
        if self.level in ("census", "watch") and is_census(index):
            cost = self.last_cost.get("census", 0.0)
            if index < 2 or cost <= credit:
                self.why = "scheduled"
                return "census"
        if self.level in ("census", "watch") and self._profile_is_due(index) and credit > 0.0:
            self.profiled = sum(first <= index for first in PROFILE_SEGMENTS)
            self.why = "scheduled"
            return "profile"
        if self.every is not None:
            self.why = f"--every {self.every}"
            return "range" if index % self.every == 0 else "pulse"
        if is_milestone(index):
            self.why = "milestone"
            return "range"
        cost = self.last_cost.get("range", self.last_cost.get("census", 0.0))
        spread = max(1, index // SPREAD)
        if index - self.last_sampled >= spread and cost <= credit:
            self.why = f"budget: {credit:.3g} s in hand, {cost:.3g} s needed"
            return "range"
        self.why = "budget"
        return "pulse"

    def _profile_is_due(self, index: int) -> bool:
        """Whether op times are wanted and segment `index` is not one that --every asks for."""
        if self.every is not None and self.every > 1 and index % self.every == 0:
            return False
        return self.profiled < sum(first <= index for first in PROFILE_SEGMENTS)

    def allows(self, seconds: float, wall_s: float) -> bool:
        """Whether `seconds` more are in hand now."""
        return self._allowance(wall_s) - self.spent_s >= seconds
