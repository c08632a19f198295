"""The one seam through which `Tensor.backward`, `autograd.backward` and `autograd.grad` pass: phases, losses,
whether each root is scaled, and which parameters each backward fed.
"""

from __future__ import annotations

import contextlib
import math
import time
from itertools import zip_longest
from typing import Any

import torch

from ampscope.hooks.clock import Row
from ampscope.hooks.collector import Collector
from ampscope.hooks.modules import short_dtype
from ampscope.hooks.parameters import Parameters
from ampscope.hooks.patches import Call
from ampscope.hooks.quiet import quiet
from ampscope.hooks.scaledness import RootState, mark_penalty, marked_state, root_state, weighted

MAX_NAMES = 64


class Backward(Collector):
    """Wraps `torch.autograd._engine_run_backward`, which the package looks up at each call."""

    name = "backward"

    def __init__(self, session: Any, parameters: Parameters, scales: Any) -> None:
        super().__init__(session)
        self._at_end: Any = None
        self.bad_loss: Any = None
        """Called with the roots before a backward whose loss is known to be non-finite by then: on the CPU. On a GPU
        its value is read later."""
        self._parameters = parameters
        self._scales = scales
        self._listeners: list[Any] = []
        self.penalised = False
        """Gradients of a scaled output were taken with create_graph: look for them below each scaled loss."""

    def install(self) -> None:
        self.wrap(
            torch.autograd,
            "_engine_run_backward",
            self._before,
            self._after,
            shortcut=self.session.shortcuts.backward,
            loop=True,
        )

    def switch_off(self) -> None:
        super().switch_off()
        self._parameters.stop_noting()

    def listen(self, listener: Any) -> None:
        """`listener()` is called after each outermost backward, while the gradients are fresh."""
        self._listeners.append(listener)

    def at_end(self, listener: Any) -> None:
        """`listener()` is called when an outermost pass of the autograd engine has ended, however it did."""
        self._at_end = listener

    def _before(self, call: Call) -> Any:
        if torch._C._current_graph_task_id() != -1:
            return None
        session = self.session
        session.trains()
        session.backward_begins()
        self._parameters.backward_begins()
        roots = [t for t in call.argument(0, "t_outputs", ()) if isinstance(t, torch.Tensor)]
        scales = self._scales()
        states = self._states(roots, scales, call)
        state = _combine(states)
        create_graph = bool(call.argument(3, "create_graph", False))
        is_grad = not call.kwargs.get("accumulate_grad", False)
        row = session.call_row(
            "autograd.grad" if is_grad else "backward",
            phase="backward",
            scaled=state.scaled,
            dtype=short_dtype(roots[0]) if roots else None,
            detail=None if session.counting else _detail(create_graph, state.penalty, call),
        )
        if not is_grad:
            known = len(session.segment.losses)
            for root, one in zip(roots, states, strict=True):
                self.read_loss(root, one, scales, row)
            if not all(math.isfinite(value) for value in session.segment.losses[known:]):
                self.bad_loss(roots)
        session.here.in_backward += 1
        session.mark("backward", True)
        session.backward_scaled = state.scaled
        return row, is_grad, create_graph, time.perf_counter()

    def _states(self, roots: list[torch.Tensor], scales: tuple[float, ...], call: Call) -> list[RootState]:
        if self.session.counting and not self.penalised:
            # Nobody reads more of them than the loss, which is known of a root that `scale` returned.
            marked = [marked_state(root) for root in roots]
            if not scales or all(state.loss is not None for state in marked):
                return marked
        with quiet():
            states = [root_state(root, scales, self.penalised) for root in roots]
            return [
                weighted(state, gradient, scales)
                for state, gradient in zip_longest(states, _gradients(call)[: len(states)])
            ]

    def read_loss(self, root: torch.Tensor, state: RootState, scales: tuple[float, ...], row: Any) -> None:
        segment = self.session.segment
        segment.loss_dtype = short_dtype(root)
        if state.loss is not None:
            segment.loss_dtype = state.loss.dtype
            state.loss.deliver_to(segment, row)
            return
        if root.numel() != 1:
            return
        divisor = scales[0] if state.scaled == "scaled" and scales else 1.0

        def receive(value: float) -> None:
            row["value"] = value / divisor
            segment.losses.append(value / divisor)
            if value - value != 0.0:
                segment.nonfinite_forward = True

        self.session.deferred.put(root, receive)

    def _after(self, call: Call, token: Any, result: Any, error: BaseException | None) -> None:
        if token is None:
            return
        row, is_grad, create_graph, began = token
        session = self.session
        session.here.in_backward -= 1
        session.mark("backward", False)
        segment = session.segment
        if self._at_end is not None:
            self._at_end()
        session.last_backward_end = time.perf_counter()
        segment.spent["backward"] += session.last_backward_end - began
        session.calls.failed(row, error)
        if is_grad:
            if create_graph and row["scaled"] in ("scaled", "mixed") and result is not None:
                for tensor in result:
                    if isinstance(tensor, torch.Tensor):
                        mark_penalty(tensor)
                        self.penalised = True
            return
        self.note_fed(row)
        if error is None:
            segment.micro += 1
            if segment.sampled:
                for listener in self._listeners:
                    listener()

    def note_fed(self, row: Row) -> None:
        """Add to the row of a backward which parameters it fed."""
        fed, owners = self._parameters.backward_ends(row["scaled"])
        row["params"], row["n_params"] = fed[:MAX_NAMES], len(fed)
        row["target"] = ",".join(owners) or None


def _combine(states: list[RootState]) -> RootState:
    kinds = {state.scaled for state in states}
    penalty = any(state.penalty for state in states)
    if not kinds:
        return RootState("unknown")
    if len(kinds) == 1:
        return RootState(kinds.pop(), penalty)
    return RootState("unknown" if "unknown" in kinds else "mixed", penalty)


def _gradients(call: Call) -> tuple[Any, ...]:
    """What backward is given to begin with, per root: ones for a loss, unless the user says otherwise."""
    given = call.argument(1, "grad_tensors", ())
    return tuple(given) if isinstance(given, (tuple, list)) else (given,)


def _detail(create_graph: bool, penalty: bool, call: Call) -> str | None:
    words = []
    if create_graph:
        words.append("create_graph")
    if penalty:
        words.append("penalty_on_scaled")
    with contextlib.suppress(Exception):
        gradients = call.argument(1, "grad_tensors", ())
        if any(isinstance(g, torch.Tensor) and g.numel() != 1 for g in gradients):
            words.append("gradient_given")
    return " ".join(words) or None
