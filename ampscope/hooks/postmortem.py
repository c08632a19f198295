"""Where a forward went wrong that nothing watched: reads what autograd saved of it, after the loss turned out to be
non-finite and before backward frees it. Runs once such a step, costs nothing in good ones, and changes nothing.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import Any

import torch

from ampscope.hooks import shadow
from ampscope.hooks.oprow import OP_COLUMNS, Row
from ampscope.hooks.quiet import quiet, readable
from ampscope.hooks.replay import replay
from ampscope.hooks.tensorfacts import dtype_text
from ampscope.hooks.valuerange import ValueRange, merged, value_range
from ampscope.hooks.view import SessionView

NODES = 20_000
"""Larger graphs are not searched."""

NAMED = 2_000
"""Ops named before the one at which the trouble began: by their order a reader finds them in an earlier census."""

ROWS = 24
"""Of these, ops that led to it and whose values are read."""

ARGUMENTS = frozenset(
    "self other target input weight mat1 mat2 batch1 batch2 tensor1 tensor2 vec vec1 vec2 source query key value src "
    "tensor x1 x2".split()
)
"""Names under which autograd saves arguments of an op, not results."""

HANDING_ON = frozenset(
    "relu view t transpose permute expand slice select unsqueeze squeeze clone _to_copy cat stack index dropout "
    "split unbind _unsafe_view reshape_alias mean sum".split()
)
"""Ops whose non-finite result most likely came in with what they read."""

SECONDS = 2.0
"""Own time that recomputing results which autograd did not keep may cost."""

_PASCAL = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=\d)(?=[A-Z][a-z])")
_NAMES = {
    "softmax": "_softmax", "log_softmax": "_log_softmax", "to_copy": "_to_copy", "unsafe_view": "_unsafe_view",
    "nll_loss": "nll_loss_forward", "nll_loss2d": "nll_loss2d_forward", "embedding_bag": "_embedding_bag",
    "cdist": "_cdist_forward", "fused_rms_norm": "_fused_rms_norm", "safe_softmax": "_safe_softmax",
}  # fmt: skip
"""Where the name of an autograd node is not that of its op."""


def op_name(node: Any) -> str:
    """`aten::log` for LogBackward0; of a custom Function its class name."""
    name = node.name().removesuffix("Backward").rstrip("0123456789").removesuffix("Backward")
    snake = _PASCAL.sub("_", name).lower()
    return f"aten::{_NAMES.get(snake, snake)}" if node.name()[-1].isdigit() else node.name()


@dataclass
class _Node:
    """One autograd node: an op of the forward. `saved` holds the attributes that autograd kept of it."""

    node: Any
    place: int
    outs: list[tuple[str, str]]
    """(dtype, shape) of its results."""
    saved: dict[str, Any] = field(default_factory=dict)
    values: dict[int, torch.Tensor] = field(default_factory=dict)
    """Results that are known, by number."""
    outside: list[torch.Tensor] = field(default_factory=list)
    """What it read that no recorded op made: data, constants."""
    tried: bool = False


class PostMortem:
    """`examine(roots)` gives rows of the ops table: the ops of the graph in order; the one at which the trouble began
    has `reached`. None when it cannot be told. Lines and callers are unknown, and so are values that autograd did not
    keep and that cannot be computed again. Ops that need no gradient are in no graph.

    `inputs` holds rows of the table nonfinite for what that op read from outside the graph.
    """

    def __init__(self, view: SessionView) -> None:
        self.view = view
        self._nodes: dict[Any, _Node] = {}
        self._order: list[_Node] = []
        self._ids: dict[tuple[int, int], int] = {}
        self._until = 0.0
        self.inputs: list[Row] = []

    def examine(self, roots: list[torch.Tensor]) -> list[Row]:
        with quiet():
            try:
                self._until = time.perf_counter() + SECONDS
                if not self._collect(roots):
                    return []
                self._read_saved(roots)
                return self._rows()
            finally:
                self._nodes, self._order, self._ids = {}, [], {}

    # -- the graph ---------------------------------------------------------------------------------------------

    def _collect(self, roots: list[torch.Tensor]) -> bool:
        front: list[Any] = [r.grad_fn for r in roots if r.grad_fn is not None]
        found: dict[Any, None] = {}
        while front:
            node = front.pop()
            if node is None or node in found:
                continue
            found[node] = None
            if len(found) > NODES:
                return False
            front.extend(n for n, _ in node.next_functions)
        nodes = [n for n in found if not n.name().endswith("AccumulateGrad")]
        nodes.sort(key=lambda n: n._sequence_nr())
        for place, node in enumerate(nodes):
            entry = _Node(node, place, [(_dtype(m), _shape(m)) for m in _metadata(node)])
            self._nodes[node] = entry
            self._order.append(entry)
        return bool(nodes)

    def _read_saved(self, roots: list[torch.Tensor]) -> None:
        for entry in self._order:
            for name in _saved_names(entry.node):
                try:
                    value = getattr(entry.node, name)
                except RuntimeError:
                    continue  # freed, or changed in place since
                name = name.removeprefix("_saved_")
                entry.saved[name] = value
                if isinstance(value, torch.Tensor):
                    self._note(entry, name, value)
        for root in roots:
            if root.grad_fn in self._nodes:
                self._nodes[root.grad_fn].values[root.output_nr] = root.detach()

    def _note(self, entry: _Node, name: str, value: torch.Tensor) -> None:
        maker = value.grad_fn
        readable_value = readable(value)
        if readable_value is None:
            return
        if maker in self._nodes:
            self._nodes[maker].values.setdefault(value.output_nr, readable_value.detach())
        elif name in ARGUMENTS and not value.requires_grad and value.is_floating_point():
            entry.outside.append(readable_value)

    # -- values ------------------------------------------------------------------------------------------------

    def _inputs(self, entry: _Node) -> list[torch.Tensor | None]:
        found: list[torch.Tensor | None] = []
        for maker, number in entry.node.next_functions:
            if maker is None:
                found.append(None)
            elif maker in self._nodes:
                found.append(self._nodes[maker].values.get(number))
            else:
                variable = getattr(maker, "variable", None)
                found.append(None if variable is None else variable.detach())
        return found

    def _complete(self, entry: _Node) -> None:
        """Compute the result of a node again where autograd did not keep it."""
        if entry.values or entry.tried or time.perf_counter() > self._until or len(entry.outs) != 1:
            return
        entry.tried = True
        value = replay(op_name(entry.node), entry.saved, self._inputs(entry), entry.outs[0])
        if value is not None:
            entry.values[0] = value

    # -- rows --------------------------------------------------------------------------------------------------

    def _rows(self) -> list[Row]:
        for entry in self._order:
            self._complete(entry)
            out = self._range_out(entry)
            if out is not None and out.nonfinite:
                break
        else:
            return []
        origin = self._earlier(entry)
        after = self._after(origin)
        close = {n.place for n in (*self._before(origin), origin, *after)}
        whole = self._order if len(self._order) <= NAMED else [n for n in self._order if n.place in close]
        return [self._row(n, values=n.place in close, origin=n is origin) for n in whole]

    def _earlier(self, entry: _Node) -> _Node:
        """The op that made it, where `entry` only hands on what an op made whose result is not known."""
        while op_name(entry.node).removeprefix("aten::") in HANDING_ON:
            unknown = [
                self._nodes[m]
                for m, _ in entry.node.next_functions
                if m in self._nodes and not self._nodes[m].values
            ]
            if len(unknown) != 1:
                break
            entry = unknown[0]
        return entry

    def _before(self, entry: _Node) -> list[_Node]:
        """The ops that led to it, at most ROWS, in order."""
        near: dict[int, _Node] = {}
        front = [entry]
        while front and len(near) < ROWS:
            here = front.pop(0)
            for maker, _ in here.node.next_functions:
                known = self._nodes.get(maker)
                if known is not None and known.place not in near:
                    near[known.place] = known
                    front.append(known)
        return [near[place] for place in sorted(near)]

    def _after(self, entry: _Node) -> list[_Node]:
        """The ops that read its result, and theirs, at most ROWS, in order; their results are computed."""
        reached = {entry.node}
        found: list[_Node] = []
        for later in self._order[entry.place + 1 :]:
            if len(found) >= ROWS:
                break
            if any(maker in reached for maker, _ in later.node.next_functions):
                reached.add(later.node)
                self._complete(later)
                found.append(later)
        return found

    def _range_out(self, entry: _Node) -> ValueRange | None:
        return merged([r for v in entry.values.values() if (r := value_range(v)) is not None])

    def _row(self, entry: _Node, *, values: bool, origin: bool = False) -> Row:
        row: Row = dict.fromkeys(OP_COLUMNS)
        makers = [(m, n) for m, n in entry.node.next_functions if m is not None]
        row["phase"], row["micro"], row["seq"] = "forward", self.view.micro(), entry.place
        row["op"], row["module"] = op_name(entry.node), self._module(entry)
        row["out_dtypes"] = [dtype for dtype, _ in entry.outs]
        row["out_shapes"] = [shape for _, shape in entry.outs]
        described = [self._described(m, n) for m, n in makers]
        described += [(dtype_text(t.dtype), _shape(t), 0) for t in entry.outside]
        row["in_dtypes"] = [dtype for dtype, _, _ in described]
        row["in_shapes"] = [shape for _, shape, _ in described]
        outs = [self._identity(entry.node, n) for n in range(len(entry.outs))]
        row["tensor_ids"] = [identity for _, _, identity in described] + outs
        row["scalars"] = [float(v) for k, v in entry.saved.items() if k in _SCALARS and _number(v)] or None
        if values:
            self._fill_ranges(entry, row)
        if origin:
            row["reached"] = "loss"
            self._fill_shadow(entry, row)
            self.inputs = [i for t in entry.outside if (i := _input_row(t, row["module"])) is not None]
        return row

    def _fill_ranges(self, entry: _Node, row: Row) -> None:
        given = [i for i in self._inputs(entry) if i is not None] + entry.outside
        found = merged([r for t in given if (r := value_range(t)) is not None])
        if found is not None and self._inputs_known(entry):
            row["in_nonfinite"], row["in_zeros"] = found.nonfinite, found.zeros
            row["in_amax"], row["in_amin"] = found.amax, found.amin
        out = self._range_out(entry)
        if out is not None:
            row["out_nonfinite"], row["out_nan"] = out.nonfinite, out.nan
            row["out_amax"], row["out_zeros"] = out.amax, out.zeros

    def _inputs_known(self, entry: _Node) -> bool:
        makers = [m for m, _ in entry.node.next_functions if m in self._nodes]
        return all(self._nodes[m].values for m in makers)

    def _fill_shadow(self, entry: _Node, row: Row) -> None:
        value = entry.values.get(0)
        if value is None or value.dtype not in shadow.HALF:
            return
        exact = replay(row["op"], entry.saved, self._inputs(entry), entry.outs[0], wide=True)
        found = None if exact is None else shadow.compare(exact, value)
        if found is not None:
            row["shadow_amax"], row["shadow_nonfinite"] = found.amax, found.nonfinite
            row["shadow_flushed"], row["shadow_sqnr_db"] = found.flushed, found.sqnr_db

    def _described(self, maker: Any, number: int) -> tuple[str, str, int]:
        known = self._nodes.get(maker)
        if known is not None and number < len(known.outs):
            return (*known.outs[number], self._identity(maker, number))
        variable = getattr(maker, "variable", None)
        if variable is None:
            return "?", "?", 0
        return dtype_text(variable.dtype), _shape(variable), 0

    def _identity(self, node: Any, number: int) -> int:
        return self._ids.setdefault((id(node), number), len(self._ids) + 1)

    def _module(self, entry: _Node) -> str | None:
        """Module of the parameter that it reads, through casts and transposes."""
        front = [m for m, _ in entry.node.next_functions if m is not None]
        for _ in range(3):
            for maker in front:
                name = self.view.param_name(maker.variable) if hasattr(maker, "variable") else None
                if name is not None:
                    return name.rpartition(".")[0] or None
            front = [
                n
                for m in front
                if op_name(m) in ("aten::_to_copy", "aten::t")
                for n, _ in m.next_functions
                if n
            ]
        return None


def _input_row(tensor: torch.Tensor, module: str | None) -> Row | None:
    found = value_range(tensor)
    if found is None or not found.nonfinite or not tensor.dim():
        return None
    return {
        "name": f"{module or 'graph'}:in", "module": module, "role": "input", "phase": "forward",
        "dtype": dtype_text(tensor.dtype), "numel": found.numel, "nan": found.nan, "posinf": found.posinf,
        "neginf": found.nonfinite - found.nan - found.posinf,
    }  # fmt: skip


_SCALARS = ("exponent", "other", "min", "max", "alpha", "ord", "eps", "value", "threshold", "beta")
_saved: dict[str, list[str]] = {}


def _saved_names(node: Any) -> list[str]:
    key = node.name()
    names = _saved.get(key)
    if names is None:
        names = _saved[key] = [a for a in dir(node) if a.startswith("_saved_")]
    return names


def _metadata(node: Any) -> list[Any]:
    return list(getattr(node, "_input_metadata", ()) or ())


def _dtype(metadata: Any) -> str:
    return dtype_text(metadata.dtype)


def _shape(thing: Any) -> str:
    return "x".join(str(int(n)) for n in thing.shape)


def _number(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.dim() == 0 and not value.requires_grad and value.grad_fn is None
    return isinstance(value, (int, float)) and not isinstance(value, bool)
