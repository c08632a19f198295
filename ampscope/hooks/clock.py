"""The step clock: segments, the optimizer steps that they lead to, and the phases within a segment.

Pure bookkeeping on host times; reads no tensor.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]

PHASES = ("data", "forward", "backward", "unscale", "optimizer")


@dataclass
class Segment:
    """Work from the end of one outermost optimizer step (or skip) to the end of the next."""

    index: int
    began: float
    level: str = "pulse"
    outcome: str = ""
    rows: list[tuple[str, Row]] = field(default_factory=list)
    micro: int = 0
    """Backward calls finished so far."""
    spent: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    losses: list[float] = field(default_factory=list)
    loss_dtype: str | None = None
    root_sum: float | None = None
    nonfinite_forward: bool = False
    scale: float | None = None
    lr: float | None = None
    autocast_dtype: str | None = None
    autocast_device: str | None = None
    own_s: float = 0.0
    fed: dict[int, int] = field(default_factory=dict)
    """id of each parameter that a backward fed, in order of first arrival, with its order."""
    zeroed: bool = False
    """The gradients that this segment produced were cleared; the next backward makes that final."""
    reads: list[Any] = field(default_factory=list)
    """Device reads (see outbox.DeviceReads) whose values belong into `rows`."""
    ended: float = 0.0
    key: Row = field(default_factory=dict)
    """The columns that place all its rows, once it has ended."""
    host_rss: int | None = None
    device_allocated: int | None = None
    device_s: Row = field(default_factory=dict)
    """Columns of the device time of its phases."""
    work_began: float = 0.0
    """When the first forward or backward of the segment began; 0 before that."""
    told: bool = True
    """Its calls are in `rows`."""
    failed: bool = False
    """One of its calls raised."""
    withheld: list[Row] = field(default_factory=list)
    """Rows of `calls` that are kept only if the segment turns out to be remarkable."""

    @property
    def counted(self) -> bool:
        """The budget has no pulse for it: nothing is timed, and calls are withheld."""
        return self.level == "count"

    @property
    def sampled(self) -> bool:
        """Whether more than the pulse is wanted."""
        return self.level not in ("pulse", "count")


@dataclass
class _OpenStep:
    number: int
    began: float
    optimizers: set[str]


class StepClock:
    """Gives every segment its step.

    A segment opens a new step if its optimizer already stepped in the current step, or was constructed after
    that step began; a segment that was abandoned is a step by itself.
    """

    def __init__(self) -> None:
        self.start = time.perf_counter()
        self.start_unix = time.time()
        self._current: _OpenStep | None = None
        self._next_step = 0
        self._opt_steps: dict[str, int] = {}
        self._constructed: dict[str, float] = {}
        self._segments = 0

    def now(self) -> float:
        """Seconds since the start of the run."""
        return time.perf_counter() - self.start

    def open_segment(self) -> Segment:
        segment = Segment(index=self._segments, began=time.perf_counter())
        self._segments += 1
        return segment

    def constructed(self, optimizer: str) -> None:
        """An optimizer came into being: steps that began earlier are not its own."""
        self._constructed[optimizer] = time.perf_counter()

    def assign(self, segment: Segment, optimizer: str | None) -> tuple[int, int | None]:
        """(step, opt_step) of a segment that ends now; `optimizer` is None for abandoned or cut-off work."""
        if optimizer is None:
            self._current = None
            number = self._next_step
            self._next_step += 1
            return number, None
        step = self._current
        if step is None or optimizer in step.optimizers or self._constructed.get(optimizer, 0.0) > step.began:
            step = _OpenStep(self._next_step, segment.work_began or segment.began, set())
            self._current = step
            self._next_step += 1
        step.optimizers.add(optimizer)
        done = self._opt_steps.get(optimizer, 0)
        self._opt_steps[optimizer] = done + 1
        return step.number, done

    def pass_over(self, segments: int, optimizer: str, until: float) -> tuple[int, int]:
        """(step, opt_step) of the first of so many segments, each ended by `optimizer` and each a step; the segment
        that is open counts among them. `until`: when the last of them ended, as time.perf_counter gives it."""
        first, done = self._next_step, self._opt_steps.get(optimizer, 0)
        self._next_step += segments
        self._segments += segments - 1
        self._opt_steps[optimizer] = done + segments
        self._current = _OpenStep(self._next_step - 1, until, {optimizer})
        return first, done

    @property
    def next_step(self) -> int:
        """Number that the next new step will get."""
        return self._next_step

    @property
    def stepping(self) -> Collection[str]:
        """The optimizers that have ended a segment so far."""
        return self._opt_steps.keys()

    @property
    def optimizers(self) -> int:
        """How many optimizers have ended a segment so far."""
        return len(self._opt_steps)
