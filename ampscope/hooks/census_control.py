"""When the dispatch modes run: the census by schedule, the op profile on segments of its own, the watch when armed.

Decides and books; what they record is theirs.
"""

from __future__ import annotations

import threading
from typing import Any

import torch

from ampscope.hooks.census import Census
from ampscope.hooks.clock import Segment
from ampscope.hooks.collector import Collector
from ampscope.hooks.dispatch import stranded, sweep
from ampscope.hooks.profiler import OpProfile
from ampscope.hooks.watch import Watch

CONSECUTIVE_SKIPS = 6
"""The normal scale search from 65536 rarely needs more, and only backward-only overflow is excused in it."""

SKIPS_AFTER_WARMUP = 2
"""Once steps have succeeded, a second skip in a row is not the overflow that follows a growth."""

WATCH_SEGMENTS = 40
"""Segments under watch without a catch, after which it is given up until something new happens."""

CATCHES = 5
"""Catches of one run: what the same fault does again teaches nothing, and each costs watched segments."""

PAUSE = 4
"""After the n-th catch the watch rests for PAUSE**n segments."""

WATCH_SECONDS = 5.0
"""Own time that all watching of a run may cost beyond the budget."""


class CensusControl(Collector):
    """Starts at most one mode per segment."""

    name = "census"

    def __init__(self, session: Any) -> None:
        super().__init__(session)
        self._census = Census(session)
        self._watch = Watch(session)
        self._profile = OpProfile()
        self._profile_is_off = False
        self._overdue = False
        """The profile's segment has ended within a backward, and the profile ends after it."""
        self._running: Any = None
        self._thread = 0
        """The thread on which it was started, and has to be stopped."""
        self._waiting = ""
        self._armed = False
        self._catches = 0
        self._rests_until = -1
        self._watched = 0
        self._watch_s = 0.0
        self._skips = 0
        self._good = False
        self.after_backward = self.guarded(self._after_backward)

    def install(self) -> None:
        if self.session.settings.watch and self.session.settings.level == "watch":
            self._arm("--watch")

    def remove(self) -> None:
        self._stop()
        super().remove()

    def switch_off(self) -> None:
        super().switch_off()
        self._stop()

    def _stop(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.stop()

    # -- arming ---------------------------------------------------------------------------------------------------

    def _arm(self, why: str) -> None:
        if self._armed or self.session.settings.level != "watch" or self._catches >= CATCHES:
            return
        if self.session.segment.index < self._rests_until:
            return
        self._armed = self.session.budget.watched = True
        self._watched = 0
        self.session.emit(
            "events",
            phase="other",
            t=self.session.clock.now(),
            event="watch_armed",
            level="info",
            subject="watch",
            message=f"The watch is armed: {why}.",
        )

    def _judge(self, segment: Segment) -> None:
        """Arm on what the ended segment showed."""
        outcome = segment.outcome
        if segment.nonfinite_forward:
            self._arm("a root output or a loss was not finite")
        if outcome == "skipped":
            self._skips += 1
            if self._skips >= (SKIPS_AFTER_WARMUP if self._good else CONSECUTIVE_SKIPS):
                self._arm(f"{self._skips} optimizer steps in a row were skipped")
        elif outcome == "stepped":
            self._skips = 0
            self._good = True

    # -- segments -------------------------------------------------------------------------------------------------

    def segment_start(self, segment: Segment) -> None:
        wanted = segment.level if segment.level in ("census", "profile") else ""
        if wanted == "profile" and self._profile_is_off:
            wanted = ""
        if self._armed and wanted != "census":
            wanted = "watch"
        self._waiting = wanted
        # Before the first segment's work lies the construction of the model: nothing to learn there.
        if segment.index > 0 and wanted != "profile":
            self._begin(wanted)

    @property
    def waits(self) -> bool:
        """Whether the end of a backward matters to it."""
        return bool(self._waiting or self._overdue or stranded())

    def work_begins(self) -> None:
        self._begin(self._waiting)

    def _after_backward(self) -> None:
        sweep()
        if self._overdue:
            self._overdue = False
            self._stop()
        self._begin(self._waiting)

    def _begin(self, wanted: str) -> None:
        if self._running is not None or not wanted or torch.compiler.is_compiling():
            return
        if torch._C._current_graph_task_id() != -1:
            return  # an optimizer that steps within backward: the engine will put its mode stack back
        self._waiting = ""
        mode: Any = {"census": self._census, "profile": self._profile, "watch": self._watch}[wanted]
        if not mode.start():
            self._note_failure(mode)
            return
        self._running = mode
        self._thread = threading.get_ident()
        if wanted == "watch":
            self.session.segment.level = "watch"

    def segment_end(self, segment: Segment) -> None:
        self._waiting = ""
        running = self._running
        if running is not None and running is self._profile and torch._C._current_graph_task_id() != -1:
            # An optimizer that steps within backward: the engine would switch the profiler on again at its end. The
            # times of half a backward are those of no step.
            self._overdue = self._profile_is_off = True
        elif running is not None and self._thread == threading.get_ident():
            self._running = None
            table = "kernels" if running is self._profile else "ops"
            for row in running.stop():
                self.session.emit(table, **row)
            self._book(running, segment)
            if running is self._watch:
                self._after_watch(segment)
        self._judge(segment)

    def _book(self, mode: Any, segment: Segment) -> None:
        """A mode works inside the user's ops, where no guard keeps its time."""
        own_s = float(getattr(mode, "own_s", 0.0))
        self.host_s += own_s
        segment.own_s += own_s
        self.elements += int(getattr(mode, "elements", 0))
        self._note_failure(mode)

    def _note_failure(self, mode: Any) -> None:
        """An exception inside a mode: all of them are off, but for the profile, which is off by itself."""
        if mode.failure is None:
            return
        text, trace = mode.failure.strip().splitlines()[-1], mode.failure
        if self.session.settings.strict:
            raise RuntimeError(text)
        if mode is self._profile:
            self._profile_is_off = True
            self.session.tell_failure("op profile", text, trace)
        else:
            self.switch_off()
            self.session.tell_failure(self.name, text, trace)

    def _after_watch(self, segment: Segment) -> None:
        self._watched += 1
        self._watch_s += segment.own_s
        if self._watch.caught:
            self._catches += 1
            self._rests_until = segment.index + PAUSE**self._catches
            self._disarm("watch_caught", "The watch caught the first op that made a non-finite value.")
        elif self._watched >= WATCH_SEGMENTS or (
            self._watch_s > WATCH_SECONDS
            and not self.session.budget.allows(segment.own_s, self.session.clock.now())
        ):
            self._rests_until = segment.index + WATCH_SEGMENTS
            self._disarm("note", f"The watch saw {self._watched} segments and caught nothing.")

    def _disarm(self, event: str, message: str) -> None:
        self._armed = self.session.budget.watched = False
        self._skips = 0
        self.session.emit(
            "events",
            phase="other",
            t=self.session.clock.now(),
            event=event,
            level="info",
            subject="watch",
            message=message,
        )
