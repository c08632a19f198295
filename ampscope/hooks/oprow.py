"""Turns one dispatched call into one row of the `ops` table: dtypes, shapes, values, flops, casts, place and identity.

Keeps rows and small integers only, never a tensor. Everything here runs inside a `__torch_dispatch__`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, KeysView
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import _C

from ampscope.hooks.attribution import Attribution, Origin
from ampscope.hooks.casts import USER, CastLabels
from ampscope.hooks.flops import flops_of
from ampscope.hooks.opinfo import OpInfo, op_info
from ampscope.hooks.quiet import quiet_in_dispatch
from ampscope.hooks.source import user_place
from ampscope.hooks.tensorfacts import FactReader, Limits, TensorFacts, collect
from ampscope.hooks.valuerange import merged
from ampscope.hooks.view import SessionView
from ampscope.trace.schema import KEY, OPS

Row = dict[str, Any]

OP_COLUMNS = ("phase", "micro", *(c.name for c in OPS.columns if c not in KEY))

_SCALARS_PER_LIST = 8


@dataclass
class PendingOp:
    """A call between `begin` and `finish`."""

    func: Any
    info: OpInfo
    args: tuple[Any, ...]
    kwargs: Row
    row: Row
    inputs: list[TensorFacts]
    written: list[torch.Tensor]
    origin: Origin
    node: Any
    made_node: bool
    extra: Any = None
    """For the collector that owns the row."""
    start: list[torch.Tensor] | None = None
    """For Absorption: what the op starts from."""
    outputs: list[TensorFacts] = field(default_factory=list)
    side: list[TensorFacts] = field(default_factory=list)
    """Arguments that were written and are not among the results: running statistics."""


class OpRows:
    """`begin` before the call, `finish` or `failed` after it. Rows come in the order of `begin`."""

    def __init__(self, view: SessionView, limits: Limits) -> None:
        self.view = view
        self.limits = limits
        self.reader = FactReader(limits)
        self.attribution = Attribution()
        self._labels: dict[int, CastLabels] = {}
        self._params: dict[int, tuple[str | None, int]] = {}
        self._seq = 0

    def start(self) -> None:
        self.attribution.start()

    @property
    def parameters(self) -> KeysView[int]:
        """Identities of the storages of parameters that were an argument so far."""
        return self._params.keys()

    def flush_casts(self) -> None:
        """No further op will come: label the casts that wait for one."""
        for labels in self._labels.values():
            labels.flush()

    def begin(self, func: Any, args: tuple[Any, ...], kwargs: Row) -> PendingOp | None:
        """Facts known before the call, the ranges of the inputs among them. None for an op on meta tensors."""
        with _C._RestorePythonTLSSnapshot():  # type: ignore[attr-defined]
            # Below the dispatcher's Python key autocast always reads as off.
            phase = self.view.phase()
        info = op_info(func)
        tensors: list[torch.Tensor] = []
        written: list[torch.Tensor] = []
        skip = info.writes if not info.reads_written else ()
        for position, value in enumerate(args):
            collect(value, written if position in skip else tensors)
            if position in info.writes and position not in skip:
                collect(value, written)
        for name, value in kwargs.items():
            collect(value, written if name in info.writes_keywords else tensors)
        if any(t.is_meta for t in tensors):
            return None
        with quiet_in_dispatch():
            inputs = [self.reader.facts(t) for t in tensors]
            if not info.view:
                self.reader.read(inputs)
            for tensor, facts in zip(tensors, inputs, strict=True):
                self._note_parameter(tensor, facts)
        row, origin, node, made = self._new_row(info, phase, inputs)
        row["scalars"] = _scalars(info, args, kwargs)
        return PendingOp(func, info, args, kwargs, row, inputs, written, origin, node, made)

    def finish(self, op: PendingOp, out: Any, seconds: float) -> Row | None:
        """The finished row; None when the result lives on the meta device."""
        tensors: list[torch.Tensor] = []
        collect(out, tensors)
        if not tensors:
            tensors = op.written  # foreach and fused ops return nothing
        if any(t.is_meta for t in tensors):
            return None
        row, info = op.row, op.info
        with quiet_in_dispatch():
            for tensor in op.written:
                self.reader.ranges.wrote(self.reader.ids.of(tensor))
            op.outputs = outputs = [self.reader.facts(t) for t in tensors]
            if not info.view and not info.uninitialised:
                self.reader.read(outputs)
            if op.written:
                results = {f.identity for f in outputs}
                op.side = [f for f in map(self.reader.facts, op.written) if f.identity not in results]
                self.reader.read(op.side)
            row["flops"] = flops_of(op.func, op.args, op.kwargs, out)
        row["host_s"] = seconds
        row["out_dtypes"] = [f.dtype for f in outputs]
        row["out_shapes"] = [f.shape for f in outputs]
        row["out_bytes"] = sum(f.nbytes for f in outputs)
        if outputs:
            row["device"] = outputs[0].device
        row["tensor_ids"] = [f.identity for f in op.inputs] + [f.identity for f in outputs]
        found = merged([f.range for f in outputs if f.range is not None])
        if found is not None:
            row["out_nonfinite"], row["out_nan"] = found.nonfinite, found.nan
            row["out_amax"], row["out_zeros"] = found.amax, found.zeros
        self._label_cast(op)
        return row

    def failed(self, op: PendingOp, error: BaseException) -> Row:
        """The row of a call that raised."""
        self._own_labels().other_op()
        op.row["error"] = type(error).__name__
        op.row["tensor_ids"] = [f.identity for f in op.inputs]
        return op.row

    # -- parts -------------------------------------------------------------------------------------------------

    def _new_row(self, info: OpInfo, phase: str, inputs: list[TensorFacts]) -> tuple[Row, Origin, Any, bool]:
        node = _C._current_autograd_node()
        forward = None if node is None else self.attribution.of(node)
        module = self.view.module()
        if node is None:
            place = user_place()
        else:
            if module is None:
                module = self._module_of_parameter(node) if forward is None else forward.module
            place = user_place(within_backward=True) or (forward and forward.place) or user_place()
        origin = Origin(info.name, module, place)
        made = self.attribution.forward_op(origin)
        row: Row = dict.fromkeys(OP_COLUMNS)
        row["phase"], row["micro"] = phase, self.view.micro()
        row["seq"], row["op"], row["module"] = self._seq, info.name, module
        self._seq += 1
        row["in_dtypes"] = [f.dtype for f in inputs]
        row["in_shapes"] = [f.shape for f in inputs]
        row["in_bytes"] = sum(f.nbytes for f in inputs)
        row["out_dtypes"], row["out_shapes"] = [], []
        if inputs:
            row["device"] = inputs[0].device
        if place is not None:
            row["file"], row["line"], row["function"] = place.file, place.line, place.function
            row["half_casts"] = place.half_casts or None
        found = merged([f.range for f in inputs if f.range is not None])
        if found is not None:
            row["in_nonfinite"], row["in_zeros"] = found.nonfinite, found.zeros
            row["in_amax"], row["in_amin"] = found.amax, found.amin
        return row, origin, node, made

    def _module_of_parameter(self, node: Any) -> str | None:
        """Module of the parameter whose gradient an AccumulateGrad node takes."""
        variable = getattr(node, "variable", None)
        name = None if variable is None else self.view.param_name(variable)
        return name.rpartition(".")[0] or None if name is not None else None

    def _note_parameter(self, tensor: torch.Tensor, facts: TensorFacts) -> None:
        if facts.identity and isinstance(tensor, torch.nn.Parameter) and facts.identity not in self._params:
            self._params[facts.identity] = (self.view.param_name(tensor), tensor.numel())

    def _own_labels(self) -> CastLabels:
        return self._labels.setdefault(threading.get_ident(), CastLabels())

    def _label_cast(self, op: PendingOp) -> None:
        labels = self._own_labels()
        is_cast = (
            op.info.cast
            and op.inputs
            and op.outputs
            and op.inputs[-1].dtype != op.outputs[0].dtype
            and "float" in op.outputs[0].dtype
        )
        if not is_cast:
            labels.other_op()
            return
        source = op.inputs[-1]
        known = self._params.get(source.identity)
        if known is not None and source.nbytes == known[1] * _item_size(source):
            op.row["cast_source"] = known[0]
        forward = None
        if op.node is not None and op.node.name().startswith("ToCopyBackward"):
            origin = self.attribution.of(op.node)
            forward = (origin and origin.cast) or USER
        labels.cast(_labeller(op), forward)


def _labeller(op: PendingOp) -> Callable[[str], None]:
    row, origin, made = op.row, op.origin, op.made_node

    def label(whose: str) -> None:
        row["cast"] = whose
        if made:
            origin.cast = whose

    return label


def _item_size(facts: TensorFacts) -> int:
    return int(getattr(torch, facts.dtype).itemsize) if facts.dtype != "?" else 1


def _scalars(info: OpInfo, args: tuple[Any, ...], kwargs: Row) -> list[float] | None:
    found: list[float] = []
    ordered = list(args) + [kwargs[name] for name in info.order if name in kwargs]
    for value in ordered:
        if isinstance(value, (int, float)):
            if not isinstance(value, bool):
                found.append(_number(value))
        elif isinstance(value, (list, tuple)) and value and isinstance(value[0], float):
            found.extend(_number(v) for v in value[:_SCALARS_PER_LIST])
    return found or None


def _number(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
