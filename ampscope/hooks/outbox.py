"""Segments that have ended and wait for values still on their way from the device, in order. Never waits for a device
unless told to, or when WAITING segments have piled up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from ampscope.hooks.clock import Row, Segment
from ampscope.hooks.deferred import DeferredScalars

WAITING = 64
"""Segments kept at most: memory stays bounded when a device falls behind."""


class DeviceReads(Protocol):
    """Tensor statistics on their way from the device; `deliver` fills them into rows already emitted."""

    def ready(self) -> bool: ...

    def deliver(self) -> None: ...


class Outbox:
    """`add` takes an ended segment, `flush` hands the rows of those that are complete to `push`."""

    def __init__(self, deferred: DeferredScalars, push: Callable[[list[tuple[str, Row]]], None]) -> None:
        self.hold = False
        """Keep the rows of the last segment: a GradScaler has yet to say what its scale becomes."""
        self._deferred = deferred
        self._push = push
        self._ended: deque[Segment] = deque()

    def add(self, segment: Segment) -> None:
        self._deferred.ship()
        self._ended.append(segment)

    def flush(self, wait: bool) -> None:
        if not self._deferred.poll(wait):
            if len(self._ended) < WAITING:
                return
            self._deferred.poll(wait=True)
        while self._ended:
            if self.hold and not wait and len(self._ended) < 2:
                return
            first = self._ended[0]
            if not wait and len(self._ended) < WAITING and not all(r.ready() for r in first.reads):
                return
            for reads in first.reads:
                reads.deliver()
            self._push(self._ended.popleft().rows)
