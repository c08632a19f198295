"""Device time of forward, backward and optimizer by events: recorded on the current stream, read when they have
passed. Never synchronises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ampscope.hooks.clock import Row

COLUMNS = {
    "forward": "forward_device_s",
    "backward": "backward_device_s",
    "optimizer": "optimizer_device_s",
}

MAX_SPANS = 64
"""Spans of one phase per segment: an accumulation over thousands of micro-batches is timed in part, and its
columns stay null."""


def timing_event() -> Any:
    """A CUDA event with timing."""
    return torch.cuda.Event(enable_timing=True)


class DeviceTimeline:
    """Events of the segment that runs now. `make` gives a new event: record(), query() and elapsed_time(later) in
    milliseconds, as torch.cuda.Event has them. Events go back into a pool once they were read."""

    def __init__(self, make: Callable[[], Any] = timing_event) -> None:
        self._make = make
        self._pool: list[Any] = []
        self._spans: dict[str, list[tuple[Any, Any]]] = {phase: [] for phase in COLUMNS}
        self._open: dict[str, Any] = {}
        self._full = False

    def begin(self, phase: str) -> None:
        if phase not in self._open:
            self._open[phase] = self._event()

    def end(self, phase: str) -> None:
        start = self._open.pop(phase, None)
        if start is None:
            return
        if len(self._spans[phase]) >= MAX_SPANS:
            self._full = True
            self._pool.append(start)
            return
        self._spans[phase].append((start, self._event()))

    def _event(self) -> Any:
        event = self._pool.pop() if self._pool else self._make()
        event.record()
        return event

    def close_segment(self, row: Row) -> PhaseReads | None:
        """Hand over the spans of the segment, to be filled into its row of `steps`."""
        spans, full = self._spans, self._full
        self._spans = {phase: [] for phase in COLUMNS}
        self._full = False
        self._pool.extend(self._open.values())
        self._open.clear()
        if full or not any(spans.values()):
            self._recycle(spans)
            return None
        return PhaseReads(row, spans, self._recycle)

    def _recycle(self, spans: dict[str, list[tuple[Any, Any]]]) -> None:
        for pairs in spans.values():
            for pair in pairs:
                self._pool.extend(pair)


class PhaseReads:
    """Spans whose events may still be on their way."""

    def __init__(
        self,
        row: Row,
        spans: dict[str, list[tuple[Any, Any]]],
        recycle: Callable[[dict[str, list[tuple[Any, Any]]]], None],
    ) -> None:
        self._row = row
        self._spans = spans
        self._recycle = recycle

    def ready(self) -> bool:
        return all(end.query() for pairs in self._spans.values() for _, end in pairs)

    def deliver(self) -> None:
        for phase, pairs in self._spans.items():
            if pairs:
                for _, end in pairs:
                    end.synchronize()
                total = sum(start.elapsed_time(end) for start, end in pairs)
                self._row[COLUMNS[phase]] = total / 1e3
        self._recycle(self._spans)
