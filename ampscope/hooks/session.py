"""The recording session of one process: owns the collectors, the step clock and the way of rows to the writer.

One session at a time; nothing is written before the process shows that it trains.
"""

from __future__ import annotations

import contextlib
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ampscope.hooks.budget import Budget
from ampscope.hooks.call_log import CallLog
from ampscope.hooks.clock import Row, Segment, StepClock
from ampscope.hooks.collector import Books, Collector, shortened
from ampscope.hooks.deferred import DeferredScalars
from ampscope.hooks.device_timing import DeviceTimeline
from ampscope.hooks.exceptions import Exceptions
from ampscope.hooks.here import Here
from ampscope.hooks.names import ModelNames, Ordinals
from ampscope.hooks.outbox import Outbox
from ampscope.hooks.process_state import capturing, device_allocated, resident_bytes
from ampscope.hooks.quiet import quiet
from ampscope.hooks.rest import Rest
from ampscope.hooks.say import say
from ampscope.hooks.settings import Settings
from ampscope.hooks.shortcuts import Shortcuts
from ampscope.hooks.sink import Sink
from ampscope.hooks.step_row import rested_bundle, step_columns


class Session:
    """Collectors call `emit`, `call_row`, `end_segment`; everything else is for the installer."""

    def __init__(self, settings: Settings, on_activate: Callable[[Session], None] | None = None) -> None:
        self.settings = settings
        self._on_activate = on_activate
        self.clock = StepClock()
        self.names = ModelNames()
        self.optimizers = Ordinals()
        self.objects = Ordinals()
        self.deferred = DeferredScalars()
        self.budget = Budget(
            share=settings.budget / 100.0,
            every=settings.every,
            level=settings.level,
            window=settings.steps,
        )
        self.sink = Sink(settings)
        self.outbox = Outbox(self.deferred, self._send)
        self.collectors: list[Collector] = []
        self.segment: Segment = self.clock.open_segment()
        self.counting = False
        """The budget has no pulse for the segment: hooks do only what keeps the step clock, losses and scales true."""
        self.shortcuts = Shortcuts(self)
        self.rest = Rest(self)
        self.calls = CallLog(self)
        self.call_row = self.calls.row
        self.here = Here()
        self.last_backward_end = 0.0
        self.thread = threading.get_ident()
        self.saw_amp = False
        """A root forward, an autocast entry or a GradScaler was seen: worth a trace even without a backward."""
        self.alarmed = False
        """A forward came out non-finite in an earlier segment."""
        self.parameters: Any = None
        """The Parameters collector: other collectors ask it who owns what."""
        self.backward_scaled: str | None = None
        """Whether the roots of the backward that runs now carry the loss scale."""
        self.books = Books()
        self.timeline: DeviceTimeline | None = None
        """Device events of the phases; there once a model runs on a device that has them."""
        self.failed: BaseException | None = None
        """The exception that escaped from the script."""
        self.closed = False
        self.filing = threading.RLock()
        """Held while a segment ends: optimizers of several threads may step at once."""
        self._tell: dict[str, list[Any]] = {}

    # -- life ----------------------------------------------------------------------------------------------

    def start(self, collectors: list[Collector]) -> None:
        """Install the collectors and open the first segment."""
        self.collectors = collectors
        for collector in collectors:
            try:
                collector.install()
            except Exception as error:
                self.fail(collector, error)
        self._tell = {
            moment: [
                collector.guarded(getattr(collector, moment))
                for collector in collectors
                if getattr(type(collector), moment) is not getattr(Collector, moment)
            ]
            for moment in ("segment_start", "segment_end", "work_begins", "backward_begins", "new_root")
        }
        self._open(self.segment)

    def close(self) -> None:
        """Remove the hooks, file unfinished work as cut off, write what is left. Idempotent."""
        if self.closed:
            return
        try:
            self.rest.end()
        except Exception as error:
            self.fail(self.shortcuts, error)
        self.closed = True
        for collector in reversed(self.collectors):
            try:
                collector.remove()
            except Exception as error:
                self.fail(collector, error)
        with self.filing:
            try:
                if self.sink.active or (self.failed is not None and self.saw_amp):
                    self.sink.activate()
                    self._file(self.segment, "cut_off" if self.segment.work_began else "ended", None)
                    self.outbox.flush(wait=True)
            finally:
                self.sink.close()

    def abandon(self) -> None:
        """Remove the hooks and write nothing: this process is a fork of the one that records."""
        self.closed = True
        self.rest.on = False
        for collector in reversed(self.collectors):
            with contextlib.suppress(Exception):
                collector.remove()

    def note_exception(self, error: BaseException) -> None:
        """An exception left the recorded block."""
        for collector in self.collectors:
            if isinstance(collector, Exceptions):
                collector.guarded(collector.record)(error)

    def fail(self, collector: Collector, error: Exception) -> None:
        """Switch a collector off after an error of its own: one event, one line; training goes on."""
        if self.settings.strict:
            raise error
        if collector.dead:
            return
        self._switch_off(self.collectors if collector.vital else [collector])
        if collector.vital:
            with contextlib.suppress(Exception):
                self.sink.activate()  # so that the trace says why it ends here
        self.tell_failure(
            collector.name,
            error,
            traceback.format_exc(limit=12),
            ", and so is the recording" * collector.vital,
        )

    def _switch_off(self, collectors: list[Collector]) -> None:
        for collector in collectors:
            collector.dead = True
            with contextlib.suppress(Exception):
                collector.switch_off()

    def tell_failure(self, name: str, error: object, trace: str, more: str = "") -> None:
        """One event and one line: `name` is off because of `error`."""
        text = type(error).__name__
        # What is broken may be what the event is made with: nothing of ours may stand between it and training.
        with contextlib.suppress(Exception):
            text = shortened(error if isinstance(error, str) else f"{text}: {error}")
            row = {
                "t": time.perf_counter() - self.clock.start,
                "event": "collector_error",
                "level": "error",
                "subject": name,
                "message": text,
                "traceback": trace,
                "segment": self.segment.index,
                "micro": self.segment.micro,
                "phase": "other",
            }
            # At once: the segment may never be filed.
            self.sink.push([("events", row)])
        self.say(f"the {name} collector failed and is off{more} ({text}); training goes on.")

    def say(self, text: str) -> None:
        """One line for the user, on stderr."""
        say(self.settings, text)

    # -- rows ----------------------------------------------------------------------------------------------

    def emit(self, table: str, **row: Any) -> Row:
        """Add a row to the current segment; micro and phase are filled in when the caller did not."""
        if self.rest.on:
            self.rest.end()
        segment = self.segment
        row.setdefault("micro", segment.micro)
        if "phase" not in row:
            row["phase"] = self.phase()
        segment.rows.append((table, row))
        return row

    # -- segments ------------------------------------------------------------------------------------------

    def work_begins(self) -> None:
        """The first forward or backward of a segment."""
        segment = self.segment
        if segment.work_began:
            return
        segment.work_began = time.perf_counter()
        if self.counting:
            return
        segment.spent["data"] = segment.work_began - segment.began
        for tell in self._tell["work_begins"]:
            tell()

    def new_root(self, root: torch.nn.Module) -> None:
        """A root module runs forward for the first time."""
        for tell in self._tell["new_root"]:
            tell(root)

    def backward_begins(self) -> None:
        """An outermost backward starts: work whose gradients were cleared before it led to nothing."""
        if self.segment.zeroed and self.segment.micro:
            self.end_segment("abandoned", None)
        self.work_begins()
        if not self.counting:
            for tell in self._tell["backward_begins"]:
                tell()

    def nothing_to_clear(self) -> bool:
        """Clearing the gradients of a segment that is only counted means something once a backward has fed them."""
        return self.counting and not self.segment.fed

    def backward_scale(self, scales: tuple[float, ...]) -> tuple[bool | None, float | None]:
        """(scaled, scale) of a gradient that flows now."""
        if self.backward_scaled == "scaled":
            return True, scales[0] if scales else None
        if self.backward_scaled == "unscaled":
            return False, 1.0
        return None, None

    def autocast_entered(self) -> None:
        """A user's autocast context opened: a model made of functions has no other beginning."""
        if torch.is_grad_enabled() and not self.here.in_backward:
            self.work_begins()
        self.here.autocast_entered(self.segment)

    def release(self, scaler: Any) -> None:
        """A GradScaler updated: the rows that waited for it may go."""
        self.outbox.hold = False
        self.rest.begin(scaler)
        with self.filing:
            self.outbox.flush(wait=False)

    def device_seen(self, device: str) -> None:
        """A root module runs on this device type: time it by events where there are some."""
        if device == "cuda" and self.timeline is None:
            self.timeline = DeviceTimeline()

    def mark(self, phase: str, begins: bool) -> None:
        """A phase begins or ends on the device."""
        if self.timeline is not None and not (begins and self.counting) and not capturing():
            (self.timeline.begin if begins else self.timeline.end)(phase)

    def trains(self) -> None:
        """The process ran a backward or an optimizer step: from now on it writes."""
        if not self.sink.active:
            try:
                self.sink.activate()
            except Exception as error:
                self._give_up(error)
                return
            self.thread = threading.get_ident()
            if self._on_activate is not None:
                self._on_activate(self)

    def _give_up(self, error: Exception) -> None:
        """The trace cannot be opened: record nothing, at no further cost."""
        if self.settings.strict:
            raise error
        self._switch_off(self.collectors)
        self.sink.close()
        why = shortened(f"{type(error).__name__}: {error}")
        self.say(f"no trace can be written to {self.settings.run_dir} ({why}); training goes on unrecorded.")

    def end_segment(self, outcome: str, optimizer: str | None) -> None:
        """File the segment under its step and open the next one."""
        with self.filing:
            segment = self.segment
            try:
                self._file(segment, outcome, optimizer)
                self.alarmed = self.alarmed or segment.nonfinite_forward
                self.outbox.flush(wait=False)
            finally:
                # Whatever went wrong, its rows are not filed twice.
                self.last_backward_end = 0.0
                self.segment = self.clock.open_segment()
            self._open(self.segment)
            if not self.outbox.hold:
                self.rest.begin(None)

    def _open(self, segment: Segment) -> None:
        level = self.budget.choose(
            segment.index, self.clock.now(), self.clock.optimizers, self.clock.next_step
        )
        segment.level = "count" if level == "rest" else level
        if segment.counted and self.modules:
            # An optimizer that steps within a forward: its modules have to leave the stack.
            segment.level = "pulse"
        counted, self.counting = self.counting, segment.counted
        self.shortcuts.on = self.counting and self.shortcuts.ready
        segment.told = not segment.counted
        if not (counted and self.counting):
            for tell in self._tell["segment_start"]:
                tell(segment)
        resting = level == "rest" and segment.counted
        self.rest.ask(self.budget.rest_segments(segment.index, self.clock.next_step) if resting else 0)

    def reopen(self, scaler: Any) -> None:
        """A rest has ended with a step, and the update of `scaler`: think again about how much is wanted."""
        with self.filing:
            self._open(self.segment)
            self.rest.begin(scaler)

    def file_rested(self, ends: Sequence[float], scaled: Sequence[Row], optimizer: str) -> None:
        """File the steps of a rest: when each ended, and, with a GradScaler, its row of `scaler`."""
        with self.filing:
            own_s = self.shortcuts.take_own_s()
            step, opt_step = self.clock.pass_over(len(ends), optimizer, ends[-1])
            common: Row = {"opt": optimizer, "own_s": own_s / len(ends)}
            bundle = rested_bundle(self.segment, step, opt_step, ends, scaled, common, self.clock.start)
            self.outbox.add(bundle)
            self.budget.charge("rest", own_s, self.sink.writer_seconds)
            self.segment = self.clock.open_segment()
            self.segment.began = ends[-1]
            self.segment.level, self.segment.told = "count", False
            self.outbox.flush(wait=False)

    def _file(self, segment: Segment, outcome: str, optimizer: str | None) -> None:
        segment.outcome = outcome
        remarkable = outcome != "stepped" or segment.nonfinite_forward
        if remarkable or segment.failed:
            CallLog.reveal(segment)
        if remarkable:
            self.budget.attend(segment.index)
        if segment.told:
            for tell in self._tell["segment_end"]:
                tell(segment)
        segment.ended = time.perf_counter()
        segment.device_allocated = device_allocated()
        if segment.sampled:
            segment.host_rss = resident_bytes()
        if self.timeline is not None:
            reads = self.timeline.close_segment(segment.device_s)
            if reads is not None:
                segment.reads.append(reads)
        segment.own_s += self.shortcuts.take_own_s()
        late_s = min(segment.own_s, self.outbox.take_late_s())
        self.budget.charge(segment.level, segment.own_s, self.sink.writer_seconds, late_s)
        step, opt_step = self.clock.assign(segment, optimizer)
        segment.key = {"step": step, "segment": segment.index, "opt": optimizer, "opt_step": opt_step}
        self.outbox.add(segment)

    def _send(self, segments: list[Segment]) -> None:
        """Push the rows of segments whose values have all arrived, the row of `steps` among them."""
        rows = []
        for segment in segments:
            if segment.outcome != "ended":
                segment.rows.append(("steps", step_columns(segment, self.clock.start)))
            for _, row in segment.rows:
                row.update(segment.key)
            rows += segment.rows
        self.sink.push(rows)

    # -- the view that the census has ------------------------------------------------------------------------

    @property
    def modules(self) -> list[torch.nn.Module]:
        """The stack of modules whose forward runs on this thread, outermost first."""
        return self.here.modules

    def phase(self) -> str:
        """forward, recompute, backward, optimizer or other, for what runs now on this thread."""
        segment = self.segment
        return self.here.phase(bool(segment.work_began) and not segment.micro)

    def micro(self) -> int:
        return self.segment.micro

    def module(self) -> str | None:
        """Name of the innermost module on this thread."""
        stack = self.modules
        return self.names.module(stack[-1]) if stack else None

    def param_name(self, tensor: torch.Tensor) -> str | None:
        found = self.names.param(tensor)
        return None if found is None else found[0]

    def quiet(self) -> Any:
        return quiet()
