"""Steps during which ampscope is all but gone, in loops so short that even counting them costs more than its share.

A hook that does nothing still costs: the call, and what the script's own code loses from the processor's caches. In a
rest the hooks of the training loop are taken away. What stays tells of every step whether it stepped or was skipped,
and what became of the loss scale; its loss, its backwards and its learning rate are not seen.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch.amp.grad_scaler import OptState

from ampscope.hooks.clock import Row
from ampscope.hooks.deferred import unseen
from ampscope.hooks.patches import leave_out_caller
from ampscope.hooks.scaler import policy_of, stage_of

if TYPE_CHECKING:
    from ampscope.hooks.optimizers import Optimizers
    from ampscope.hooks.parameters import Parameters
    from ampscope.hooks.scaler import Scaler
    from ampscope.hooks.session import Session

LONGEST_S = 1.0
"""A rest ends after this time: only then what it saw is on its way to the disk."""


class Rest:
    """`on` while it lasts. Only the usual loop rests: one thread, one optimizer, at most one GradScaler, nothing
    compiled. Anything else that happens ends the rest first."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._fed: list[torch.Tensor] = []
        """Where the hooks of parameters, which stay, note what backward has fed."""
        self._optimizers: Any = None
        self._scaler: Any = None
        self.on = False
        self._due = 0
        self._left = 0
        self._until = 0.0
        self.optimizer: Any = None
        """A weak reference, as `_scaled_by`."""
        self._name = ""
        self._scaled_by: Any = None
        self._scaler_name = ""
        self._policy: Row = {}
        self.scaled = False
        """A scaler is in use: a step ends with its update."""
        self.stepped = False
        """The optimizer has stepped, and the update of the scaler is to come."""
        self._ends: list[float] = []
        """When each step so far ended."""
        self._scaled: list[Row] = []
        """With a scaler: what will be the row of each in `scaler`."""

    def connect(self, parameters: Parameters, optimizers: Optimizers, scaler: Scaler) -> None:
        """The collectors whose state a rest keeps true. Without them there is none."""
        self._fed = parameters.fed_now
        self._optimizers = optimizers
        self._scaler = scaler

    # -- beginning ------------------------------------------------------------------------------------------------

    def ask(self, segments: int) -> None:
        """Rest for so many segments as soon as `begin` is called; 0 takes that back."""
        self._due = segments

    def begin(self, scaler: Any) -> None:
        """Begin the rest that is due, if this is a loop that may rest. A step has just ended: with the update of
        `scaler`, if that is not None."""
        due, self._due = self._due, 0
        if not due or self.on or not self._possible(scaler):
            return
        self._left = due
        self._until = time.perf_counter() + LONGEST_S
        self.stepped = False
        for collector in self._session.collectors:
            collector.rest()
        self.on = True

    def _possible(self, scaler: Any) -> bool:
        session = self._session
        if (
            self._scaler is None
            or self._optimizers.nested
            or session.clock.optimizers != 1
            or len(self._scaler.known_scales) > 1
            or session.modules
            or session.here.in_backward
            or threading.get_ident() != session.thread
            or torch._C._current_graph_task_id() != -1
            or _compiled_anything()
        ):
            return False
        stepping = session.clock.stepping
        found = [(name, thing) for name, thing in session.optimizers.things() if name in stepping]
        if len(found) != 1:
            return False
        self._name, optimizer = found[0]
        self.optimizer = weakref.ref(optimizer)
        self._scaled_by, self.scaled = None, scaler is not None
        if scaler is not None:
            self._scaled_by = weakref.ref(scaler)
            self._scaler_name = session.objects.name(scaler)
            self._policy = policy_of(scaler)
            # A fused optimizer is called on skipped steps too.
            return not getattr(optimizer, "_step_supports_amp_scaling", False)
        return True

    # -- what is still seen ---------------------------------------------------------------------------------------

    def observed_update(self, original: Any, observed: Any) -> Any:
        """What `GradScaler.update` is during a rest: a few lines for the update after a step, and for any other what
        it is otherwise."""
        is_compiling = torch.compiler.is_compiling

        def update(*args: Any, **kwargs: Any) -> Any:
            if (
                not self.stepped
                or len(args) != 1
                or kwargs
                or args[0] is not self._scaled_by()
                or is_compiling()
            ):
                return observed(*args, **kwargs)
            try:
                result = original(*args)
            except BaseException as error:
                self._update_raised(error)
                leave_out_caller(error)
                raise
            self.tick(args[0])
            return result

        return update

    def interrupted(self) -> bool:
        """A step that is none of a rest begins: end the rest. False."""
        try:
            self._end_step()
        except Exception as error:
            self._session.shortcuts.failed(error)
        return False

    def _update_raised(self, error: BaseException) -> None:
        try:
            self._end_step()
            row = self._session.call_row("scaler.update", object=self._scaler_name, phase="other")
            self._session.calls.failed(row, error)
        except Exception as failure:
            self._session.shortcuts.failed(failure)

    def no_step(self, scaler: Any) -> None:
        """A scaler updates without the step before that a rest knows: end the rest, and tell a skip."""
        self._end_step()
        self._tell_skip(scaler)

    def tick(self, scaler: Any = None) -> None:
        """A step has ended, with the update of `scaler` if that is not None."""
        began = time.perf_counter()
        try:
            self.stepped = False
            if scaler is not None:
                self._read(scaler)
            self._ends.append(began)
            self._fed.clear()
            self._left -= 1
            if self._left <= 0 or began > self._until:
                self.end()
                self._session.reopen(scaler)
        except Exception as error:
            self._session.shortcuts.failed(error)
        self._session.shortcuts.own_s += time.perf_counter() - began

    def _read(self, scaler: Any) -> None:
        known, name = self._scaler.known_scales, self._scaler_name
        row: Row = {"scale": known[name]}
        scale, tracker = scaler._scale, scaler._growth_tracker
        self._scaled.append(row)
        if scale.is_cpu and unseen(scale):
            row["scale_after"] = known[name] = scale.item()
            row["growth_tracker"] = tracker.item()
        else:
            self._scaler.read(scaler, name, [row])

    def _tell_skip(self, scaler: Any) -> None:
        """The optimizer was not called: because the scaler found an overflow, or because the script left it out."""
        session = self._session
        optimizer, name = self.optimizer(), session.objects.name(scaler)
        if optimizer is None or stage_of(scaler, optimizer) is not OptState.STEPPED:
            return
        row = session.call_row(
            "scaler.step",
            object=name,
            target=self._name,
            enabled=True,
            value=self._scaler.known_scales.get(name),
            phase="optimizer",
        )
        self._scaler.step_ends(self._scaler.step_begins(scaler, optimizer, name, self._name, row), None)

    def _end_step(self) -> None:
        """End the rest; a step that waited for the scaler to update ends with it."""
        stepped, self.stepped = self.stepped, False
        self.end()
        if stepped:
            self._session.end_segment("stepped", self._name)

    # -- end ------------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Put the hooks back and file the steps of the rest. The segment that is open then began with the last of
        them, and is counted."""
        if not self.on:
            return
        with self._session.filing:
            if not self.on:
                return
            self.on = False
            for collector in self._session.collectors:
                with contextlib.suppress(Exception):
                    collector.wake()
            ends, self._ends = self._ends, []
            scaled, self._scaled = self._scaled, []
            if ends:
                self._complete(scaled)
                self._session.file_rested(ends, scaled, self._name)

    def _complete(self, rows: list[Row]) -> None:
        """Add to rows of `scaler` what those of a rest have in common."""
        common = {"phase": "optimizer", "scaler": self._scaler_name, "found_inf": False, "skipped": False}
        for row in rows:
            row.update(common)
            row.update(self._policy)


def _compiled_anything() -> bool:
    """Whether Dynamo has compiled a frame: its guards may hold what a rest would take away."""
    dynamo = sys.modules.get("torch._dynamo.convert_frame")
    return bool(getattr(dynamo, "FRAME_COUNTER", 0))
