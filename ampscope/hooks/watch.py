"""Waits for the first op whose inputs are finite and whose result is not, forward or backward, and keeps that op, the
ops before it, and how far its values went. Changes nothing of the run and keeps no tensor.
"""

from __future__ import annotations

import sys
from collections import deque
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch

from ampscope.hooks.census import Shadows
from ampscope.hooks.dispatch import OpMode
from ampscope.hooks.flow import Flow, Verdict
from ampscope.hooks.oprow import OpRows, PendingOp, Row
from ampscope.hooks.quiet import quiet, readable
from ampscope.hooks.tensorfacts import Limits
from ampscope.hooks.view import SessionView

TRANSITIONS = 64
"""Kept per segment: where things have gone wrong, ops without number follow."""

CONTEXT = 40
"""Ops kept before each of the first FULL_CONTEXT, SHORT_CONTEXT ops before later ones."""

FULL_CONTEXT = 8
SHORT_CONTEXT = 5

WATCH_LIMITS = Limits(elements=1 << 28, seconds=float("inf"))

_PRUNE_AT = 50_000


@dataclass
class _Caught:
    source: int
    rows: list[Row]
    """The op itself last."""


class Watch(OpMode):
    """`start()` at the beginning of a segment, `stop()` at its end, as often as wanted: each segment by itself.

    Three kinds of ops are kept, each with its context, as rows of the `ops` table:
    transitions (`in_nonfinite` 0, or a mask, and `out_nonfinite` > 0) with a float32 shadow; the first op to read
    a non-finite tensor that came from outside (`in_nonfinite` > 0); ops that raised (`error` set). `reached` is
    set on the first two when their values got to a loss, a gradient or a weight.
    """

    def __init__(self, view: SessionView, limits: Limits = WATCH_LIMITS) -> None:
        super().__init__()
        self.view = view
        self.limits = limits
        self.elements = 0
        self._reset()
        self._was_caught = False

    def _reset(self) -> None:
        self._ops = OpRows(self.view, self.limits)
        self._shadows = Shadows(self.limits, everything=True)
        self._flow = Flow()
        self._ring: deque[Row] = deque(maxlen=CONTEXT + 1)
        self._kept: list[_Caught] = []

    @property
    def caught(self) -> bool:
        """A non-finite value was followed from its op to a loss, a gradient or a weight, in this segment or an
        earlier one."""
        return self._was_caught or bool(self._flow.reached)

    def start(self) -> bool:
        """False when nothing may be observed now: see `OpMode.enter_stack`."""
        self._reset()
        self.own_s = 0.0
        self._ops.start()
        return self.enter_stack()

    def stop(self) -> list[Row]:
        """Leave the mode stack and hand over the rows that were kept, in order, each once."""
        self.leave_stack()
        self._ops.flush_casts()
        self.elements = self._ops.reader.ranges.elements
        rows: dict[int, Row] = {}
        for kept in self._kept:
            kept.rows[-1]["reached"] = self._flow.reached.get(kept.source)
            rows.update((int(row["seq"]), row) for row in kept.rows)
        self._was_caught = self.caught
        self._reset()
        return [rows[seq] for seq in sorted(rows)]

    def loss(self, tensor: torch.Tensor) -> None:
        """Tell that `tensor` is a loss. Not needed where backward is called on it without a gradient argument."""
        with quiet():
            values = readable(tensor)
            if values is not None:
                self._flow.arrived(self._ops.reader.ids.of(values), "loss")

    def before(self, func: Any, args: tuple[Any, ...], kwargs: Row) -> PendingOp | None:
        if len(self._ops.reader.ids) > _PRUNE_AT:
            self._flow.keep(self._ops.reader.prune())
        op = self._ops.begin(func, args, kwargs)
        if op is not None:
            self._shadows.before(op)
        return op

    def after(self, op: PendingOp, out: Any, seconds: float) -> None:
        row = self._ops.finish(op, out, seconds)
        if row is None:
            return
        verdict = self._flow.follow(op, self._ops.parameters)
        if op.info.name == "aten::ones_like" and _seeds_backward():
            self._flow.arrived(op.inputs[0].identity, "loss")
        if verdict is Verdict.TRANSITION and len(self._kept) < TRANSITIONS:
            self._shadows.after(op, out)
        self._ring.append(row)
        if verdict is not Verdict.NOTHING:
            self._keep(self._flow.sources - 1)

    def raised(self, op: PendingOp, error: BaseException) -> None:
        self._ring.append(self._ops.failed(op, error))
        self._keep(-1)

    def _keep(self, source: int) -> None:
        if len(self._kept) < TRANSITIONS:
            length = CONTEXT if len(self._kept) < FULL_CONTEXT else SHORT_CONTEXT
            self._kept.append(_Caught(source, list(self._ring)[-length - 1 :]))


def _seeds_backward() -> bool:
    """This op makes the implicit gradient of a backward root."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(6):
        if frame is None:
            return False
        if frame.f_code.co_name == "_make_grads":
            return True
        frame = frame.f_back
    return False
