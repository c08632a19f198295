"""Every aten op of one segment as rows of the `ops` table, with values, and float32 shadows of the half ops where
precision is lost. Changes nothing of the run and keeps no tensor.
"""

from __future__ import annotations

import time
from typing import Any

from ampscope.hooks import shadow
from ampscope.hooks.absorption import Absorption
from ampscope.hooks.dispatch import OpMode
from ampscope.hooks.oprow import OpRows, PendingOp, Row
from ampscope.hooks.tensorfacts import Limits
from ampscope.hooks.view import SessionView


class Census(OpMode):
    """`start()` at the beginning of a segment, `stop()` at its end on the same thread; may be started again.

    Rows have the columns of `ampscope.trace.schema.OPS` without those of KEY except phase and micro. Shapes are
    written 16x32; a 0-d tensor has the empty shape. Views get a row without values. `failure` holds the
    traceback text if an exception of ours ended the census early: the rows up to then are good.
    """

    def __init__(self, view: SessionView, limits: Limits | None = None) -> None:
        super().__init__()
        self.view = view
        self.limits = limits or Limits()
        self.dropped = 0
        """Ops beyond `limits.rows` that were not recorded."""
        self.elements = 0
        """Tensor elements read."""
        self._ops = OpRows(view, self.limits)
        self._shadows = Shadows(self.limits)
        self._absorption = Absorption()
        self._rows: list[Row] = []

    def start(self) -> bool:
        """False when nothing may be observed now: see `OpMode.enter_stack`."""
        self._ops = OpRows(self.view, self.limits)
        self._shadows = Shadows(self.limits)
        self._rows = []
        self.dropped, self.own_s = 0, 0.0
        self._ops.start()
        return self.enter_stack()

    def stop(self) -> list[Row]:
        """Leave the mode stack and hand over the rows, in order."""
        self.leave_stack()
        self._ops.flush_casts()
        self.elements = self._ops.reader.ranges.elements
        rows, self._rows = self._rows, []
        self._ops = OpRows(self.view, self.limits)
        rows.sort(key=lambda row: int(row["seq"]))
        return rows

    def before(self, func: Any, args: tuple[Any, ...], kwargs: Row) -> PendingOp | None:
        if len(self._rows) >= self.limits.rows:
            self.dropped += 1
            return None
        if self.own_s > self.limits.seconds:
            self._ops.reader.read_values = False
        op = self._ops.begin(func, args, kwargs)
        if op is not None and self._ops.reader.read_values:
            self._shadows.before(op)
            self._absorption.before(op)
        return op

    def after(self, op: PendingOp, out: Any, seconds: float) -> None:
        row = self._ops.finish(op, out, seconds)
        if row is None:
            return
        if self._ops.reader.read_values:
            self._shadows.after(op, out)
            self._absorption.after(op, out)
        self._rows.append(row)

    def raised(self, op: PendingOp, error: BaseException) -> None:
        self._rows.append(self._ops.failed(op, error))


class Shadows:
    """Fills the shadow_* columns within the limits: matmuls, reductions and casts everywhere, other ops in
    backward only, where they flush gradients."""

    def __init__(self, limits: Limits, everything: bool = False) -> None:
        self.limits = limits
        self.everything = everything
        self.spent_s = 0.0

    def before(self, op: PendingOp) -> None:
        """An op that overwrites its argument is recomputed before it runs."""
        if self._wanted(op) and shadow.in_place(op.func) and self._small(op):
            began = time.perf_counter()
            op.extra = shadow.reference(op.func, op.args, op.kwargs)
            self.spent_s += time.perf_counter() - began

    def after(self, op: PendingOp, out: Any) -> None:
        if not self._wanted(op) or not shadow.half_outputs(out):
            return
        if not self._small(op) or (op.row["flops"] or 0.0) > self.limits.shadow_flops:
            return
        began = time.perf_counter()
        if op.extra is not None:
            found = shadow.compare(op.extra, out)
        else:
            found = shadow.recompute(op.func, op.args, op.kwargs, out, ulp=False)
        self.spent_s += time.perf_counter() - began
        if found is not None:
            row = op.row
            row["shadow_amax"], row["shadow_nonfinite"] = found.amax, found.nonfinite
            row["shadow_flushed"], row["shadow_sqnr_db"] = found.flushed, found.sqnr_db

    def _wanted(self, op: PendingOp) -> bool:
        kind = shadow.kind_of(op.func)
        if kind is None or self.spent_s > self.limits.shadow_seconds:
            return False
        return self.everything or kind != "pointwise" or op.node is not None

    def _small(self, op: PendingOp) -> bool:
        tensors = [f.value for f in (*op.inputs, *op.outputs) if f.value is not None]
        return all(t.numel() <= self.limits.shadow_elements for t in tensors)
