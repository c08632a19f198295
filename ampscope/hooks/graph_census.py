"""Op dtypes of compiled graphs, read from the text that Inductor keeps of each: no run-time cost, no change of its
configuration or cache keys. Never imports Inductor itself, and knows nothing of values.
"""

from __future__ import annotations

import functools
import importlib
import re
import sys
from dataclasses import dataclass
from typing import Any

import torch

from ampscope.hooks.oprow import OP_COLUMNS, Row

FIRST_SEQ = 1_000_000
"""`seq` of these rows starts here, after the ops that a census saw in the same segment."""

MAX_ROWS = 50_000
"""Kept between two calls of `drain`."""

_OUTPUT_CODE = "torch._inductor.output_code"

_DTYPES = {
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "b8": "bool",
    "c64": "complex64",
    "c128": "complex128",
    **{
        f"{sign}{bits}": f"{name}{bits}"
        for sign, name in (("i", "int"), ("u", "uint"))
        for bits in (8, 16, 32, 64)
    },
    **{f"f8{kind}": f"float8_{kind}" for kind in ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e8m0fnu")},
}

_TYPE = r'"(?P<dtype>[a-z]+\d+\w*)\[(?P<shape>[^\]]*)\](?:\[[^\]]*\])?(?P<device>[a-z]*)[:\d]*"'
_ARGUMENT = re.compile(r"(?P<name>\w+): " + _TYPE)
_NODE = re.compile(
    r"^\s+(?P<name>\w+)(?:: (?P<type>\"[^\"]*\"))? = "
    r"torch\.ops\.(?P<op>\w+\.\w+)(?:\.\w+)?\((?P<args>.*?)\)(?:; .*)?$"
)
_ITEM = re.compile(r"^\s+(?P<name>\w+): (?P<type>\"[^\"]*\") = (?P<of>\w+)\[\d+\]")
_WORD = re.compile(r"[A-Za-z_]\w*")
_NUMBER = re.compile(r"^-?(?:\d+\.?\d*(?:e[-+]?\d+)?|inf|nan)$")


@dataclass(frozen=True)
class GraphTensor:
    """A value of the graph. `shape` may hold symbols: s0x16."""

    dtype: str
    shape: str
    device: str


@dataclass
class GraphOp:
    """A node of the graph in order."""

    op: str
    inputs: list[GraphTensor]
    outputs: list[GraphTensor]
    scalars: list[float]


def parse_graph(text: str) -> list[GraphOp]:
    """Ops of a graph as `GraphModule.print_readable` writes it, views included. Lines that are not understood
    are left out. half pointwise ops appear in float32 between two converts: that is how Inductor computes them."""
    values: dict[str, GraphTensor] = {}
    ops: list[GraphOp] = []
    by_name: dict[str, GraphOp] = {}
    for line in text.splitlines():
        node = _NODE.match(line)
        if node is not None:
            words = _WORD.findall(node["args"])
            op = GraphOp(
                node["op"].replace(".", "::"),
                [values[w] for w in words if w in values],
                [],
                _scalars(node["args"]),
            )
            made = _tensor(node["type"])
            if made is not None:
                values[node["name"]] = made
                op.outputs.append(made)
            by_name[node["name"]] = op
            ops.append(op)
            continue
        item = _ITEM.match(line)
        if item is not None:
            made = _tensor(item["type"])
            if made is not None:
                values[item["name"]] = made
                if item["of"] in by_name:
                    by_name[item["of"]].outputs.append(made)
        elif line.lstrip().startswith("def forward("):
            for argument in _ARGUMENT.finditer(line):
                values[argument["name"]] = _made(argument)
    return ops


def _tensor(text: str | None) -> GraphTensor | None:
    found = re.match(_TYPE, text) if text else None
    return None if found is None else _made(found)


def _made(found: re.Match[str]) -> GraphTensor:
    dtype = found["dtype"]
    return GraphTensor(_DTYPES.get(dtype, dtype), found["shape"].replace(", ", "x"), found["device"])


def _scalars(args: str) -> list[float]:
    """Numbers among the arguments, not those inside lists."""
    flat = re.sub(r"\[[^\]]*\]", "", args)
    words = (part.rpartition("=")[2].strip() for part in flat.split(","))
    return [float(word) for word in words if _NUMBER.match(word)]


class GraphCensus:
    """`install()` once; `drain()` at the end of each segment gives the rows of what was compiled in it."""

    def __init__(self) -> None:
        self.failure: str | None = None
        self._graphs: list[tuple[str, bool]] = []
        self._count = 0
        self._undo: list[tuple[Any, str, Any]] = []

    def install(self) -> None:
        """Watch for compiled graphs, from the moment at which Inductor is imported."""
        if not self._wrap_inductor():
            # The first thing that torch.compile does when it is about to import Inductor.
            backend = getattr(torch, "_TorchCompileInductorWrapper", None)
            if backend is not None:
                self._replace(backend, "__call__", self._before_compile)

    def check(self) -> None:
        """Look again whether Inductor was imported, by whatever way."""
        self._wrap_inductor()

    def remove(self) -> None:
        while self._undo:
            owner, name, original = self._undo.pop()
            setattr(owner, name, original)

    def drain(self) -> list[Row]:
        """Rows of the graphs compiled (or taken from the cache) since the last call; usually none."""
        graphs, self._graphs = self._graphs, []
        rows: list[Row] = []
        for text, backward in graphs:
            rows.extend(self._rows(text, backward, FIRST_SEQ + len(rows)))
            self._count += 1
        return rows[:MAX_ROWS]

    def _rows(self, text: str, backward: bool, seq: int) -> list[Row]:
        rows = []
        for offset, op in enumerate(parse_graph(text)):
            row: Row = dict.fromkeys(OP_COLUMNS)
            row["phase"] = "backward" if backward else "forward"
            row["seq"], row["op"] = seq + offset, op.op
            row["in_dtypes"], row["in_shapes"] = [t.dtype for t in op.inputs], [t.shape for t in op.inputs]
            row["out_dtypes"], row["out_shapes"] = (
                [t.dtype for t in op.outputs],
                [t.shape for t in op.outputs],
            )
            row["scalars"] = op.scalars or None
            row["device"] = op.outputs[0].device if op.outputs else None
            row["function"] = f"compiled graph {self._count}"
            rows.append(row)
        return rows

    # -- the two seams -------------------------------------------------------------------------------------------

    def _wrap_inductor(self) -> bool:
        module = sys.modules.get(_OUTPUT_CODE)
        owner = getattr(module, "CompiledFxGraph", None)
        if owner is None:
            return False
        if not any(kept is owner for kept, _, _ in self._undo):
            self._replace(owner, "post_compile", self._note)
        return True

    def _before_compile(self, backend: Any) -> None:
        importlib.import_module("torch._inductor.compile_fx")  # the wrapped function would import it now
        self._wrap_inductor()

    def _note(self, graph: Any) -> None:
        text = getattr(graph, "inductor_post_grad_graph_str", None)
        if text:
            options = getattr(graph, "fx_kwargs", None) or {}
            self._graphs.append((text, bool(options.get("is_backward"))))

    def _replace(self, owner: Any, name: str, before: Any) -> None:
        """Have `before(self)` called ahead of a method; its exceptions end the census, not the compilation."""
        original = owner.__dict__[name]

        @functools.wraps(original)
        def method(this: Any, *args: Any, **kwargs: Any) -> Any:
            if self.failure is None:
                try:
                    before(this)
                except Exception as error:
                    self.failure = f"{type(error).__name__}: {error}"
            return original(this, *args, **kwargs)

        setattr(owner, name, method)
        self._undo.append((owner, name, original))
