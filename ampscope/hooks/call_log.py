"""The rows of the table `calls`: order, time, place and the state of autocast of each API call.

In a segment that is only counted (see `budget`) the calls of the training loop are withheld: noting the line of each
is most of what a pulse costs. They become rows after all when the segment turns out to be remarkable.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from ampscope.hooks.clock import Row, Segment
from ampscope.hooks.collector import shortened
from ampscope.hooks.process_state import autocast_dtype
from ampscope.hooks.source import Place, user_place

if TYPE_CHECKING:
    from ampscope.hooks.session import Session

LOOP_CALLS = frozenset(
    "backward autograd.grad optimizer.step optimizer.zero_grad scaler.scale scaler.unscale_ scaler.step "
    "scaler.update".split()
)
"""What a loop calls in every step. Other calls are recorded whenever they are seen."""


class CallLog:
    """`row` is what collectors call. The dict that it returns may be completed later."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._seq = 0

    def row(self, call: str, place: Place | None = None, recorded: bool | None = None, **row: Any) -> Row:
        """Add a row to `calls`. `recorded` overrides whether the call is recorded or withheld now."""
        session = self._session
        if session.rest.on:
            session.rest.end()
        segment = session.segment
        self._seq += 1
        row["seq"] = self._seq
        row["call"] = call
        row["micro"] = segment.micro
        if not (recorded if recorded is not None else not session.counting or call not in LOOP_CALLS):
            segment.withheld.append(row)
            return row
        row["t"] = time.perf_counter() - session.clock.start
        row["thread_main"] = threading.get_ident() == session.thread
        row["autocast_dtype"] = autocast_dtype()[1]
        if "phase" not in row:
            row["phase"] = session.phase()
        _locate(row, place if place is not None else user_place(skip=1))
        segment.rows.append(("calls", row))
        return row

    def withhold(self, row: Row) -> Row:
        """The call that `row` describes, in a segment that is only counted."""
        segment = self._session.segment
        self._seq += 1
        row["seq"] = self._seq
        row["micro"] = segment.micro
        segment.withheld.append(row)
        return row

    def failed(self, row: Row, error: BaseException | None) -> None:
        """The call of `row` raised `error`, if that is not None."""
        if error is None:
            return
        row["error"] = type(error).__name__
        self._session.segment.failed = True
        row["message"] = shortened(str(error))
        if "file" not in row:
            _locate(row, user_place(skip=1))

    @staticmethod
    def reveal(segment: Segment) -> None:
        """Make rows of what a counted segment withheld, and of what failed in others: times and most places stay
        unknown."""
        segment.rows.extend(("calls", row) for row in segment.withheld if segment.counted or "error" in row)
        segment.withheld.clear()
        segment.told = True


def _locate(row: Row, place: Place | None) -> None:
    if place is not None:
        row["file"], row["line"], row["function"] = place.file, place.line, place.function
