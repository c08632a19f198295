"""Segments that have ended and wait for values still on their way from the device, in order. Never waits for a device
unless told to, or when WAITING segments have piled up.

Segments that were only counted go in batches: making their rows one after the other takes a third of the time that
it takes in the middle of a training step, where the processor has other code at hand.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from ampscope.hooks.clock import Segment
from ampscope.hooks.deferred import DeferredScalars

WAITING = 64
"""Segments kept at most: memory stays bounded when a device falls behind."""

BATCH = 32
BATCH_SECONDS = 0.25
"""How many segments, and how long, a counted segment waits for company. A crash loses no more than that."""


class DeviceReads(Protocol):
    """Tensor statistics on their way from the device; `deliver` fills them into rows already emitted."""

    def ready(self) -> bool: ...

    def deliver(self) -> None: ...


class Outbox:
    """`add` takes an ended segment, `flush` hands those that are complete to `send`."""

    def __init__(self, deferred: DeferredScalars, send: Callable[[list[Segment]], None]) -> None:
        self.hold = False
        """Keep the rows of the last segment: a GradScaler has yet to say what its scale becomes."""
        self._deferred = deferred
        self._send = send
        self._ended: deque[Segment] = deque()
        self._late_s = 0.0

    def add(self, segment: Segment) -> None:
        self._deferred.ship()
        self._ended.append(segment)

    def flush(self, wait: bool) -> None:
        if not self._deferred.poll(wait):
            if len(self._ended) < WAITING:
                return
            self._deferred.poll(wait=True)
        if not wait and self._waits_for_company():
            return
        complete: list[Segment] = []
        try:
            while self._ended:
                if self.hold and not wait and len(self._ended) < 2:
                    return
                first = self._ended[0]
                if not wait and len(self._ended) < WAITING and not all(r.ready() for r in first.reads):
                    return
                if first.reads:
                    began = time.perf_counter()
                    for reads in first.reads:
                        reads.deliver()
                    self._late_s += time.perf_counter() - began
                complete.append(self._ended.popleft())
        finally:
            if complete:
                self._send(complete)

    def take_late_s(self) -> float:
        """Seconds that went into the values of segments that had ended, since the last call."""
        late_s, self._late_s = self._late_s, 0.0
        return late_s

    def _waits_for_company(self) -> bool:
        ended = self._ended
        return (
            bool(ended)
            and len(ended) < BATCH
            and ended[0].counted
            and time.perf_counter() - ended[0].ended < BATCH_SECONDS
        )
