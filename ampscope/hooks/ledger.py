"""Writes what each collector cost, at sampled segments and every hundredth of the others."""

from __future__ import annotations

from typing import Any

from ampscope.hooks.clock import Segment
from ampscope.hooks.collector import Collector

EVERY = 100


class Ledger(Collector):
    """The last collector of a session: it closes the books of a segment after all others."""

    name = "ledger"

    def __init__(self, session: Any) -> None:
        super().__init__(session)
        self._booked: dict[str, tuple[int, float, int]] = {}

    def segment_end(self, segment: Segment) -> None:
        if segment.level == "pulse" and segment.index % EVERY and not self.session.closed:
            return
        for collector in self.session.collectors:
            calls, host_s, elements = self._booked.get(collector.name, (0, 0.0, 0))
            self._booked[collector.name] = (collector.calls, collector.host_s, collector.elements)
            self.session.emit(
                "ledger",
                phase="other",
                collector=collector.name,
                calls=collector.calls - calls,
                host_s=collector.host_s - host_s,
                elements=collector.elements - elements,
                why=f"{segment.level}: {self.session.budget.why}",
            )
