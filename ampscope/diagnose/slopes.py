"""Forward ops whose value is finite where their slope is not: suspects for a gradient that went bad while no op was
recorded. Reads the last census before it; says which lines could have done it, not which did.
"""

from __future__ import annotations

from ampscope.diagnose.lineage import functional
from ampscope.diagnose.opflow import Op, SegmentOps
from ampscope.diagnose.origins import load_segment
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.troubles import Trouble

STEEP = frozenset({"sqrt", "acos", "asin", "acosh"})
"""Finite at 0 or 1, with an infinite slope there. Norms, std and distances are not among them: torch gives them the
slope 0."""

MASKABLE = frozenset({"log", "log2", "log10", "div", "reciprocal", "rsqrt", "sqrt", "pow", "exp"})
"""Not finite themselves at some inputs; `torch.where` after them hides the value and not the gradient."""


def suspects(s: Signals, trouble: Trouble) -> tuple[Op, ...]:
    """The suspects on the way to the loss in the last census before a segment, one a line, in order."""
    rank, proc, segment = trouble.key
    known = s.frame(
        f"SELECT max(segment) AS segment FROM steps WHERE rank = {rank} AND coalesce(proc, 0) = {proc} AND "
        f"segment < {segment} AND level = 'census' AND outcome = 'stepped'"
    )["segment"]
    flow = None if known.isna().all() else load_segment(s, (rank, proc, int(known.iloc[0])))
    if flow is None:
        return ()
    found: dict[tuple[str | None, int | None], Op] = {}
    for op in flow.ops:
        if op.phase == "forward" and op.line is not None and _steep(flow, op):
            found.setdefault((op.file, op.line), op)
    return tuple(found.values())


def _steep(flow: SegmentOps, op: Op) -> bool:
    name = functional(op)
    if name in STEEP or (name == "pow" and any(0.0 < e < 1.0 for e in op.scalars[:1])):
        return _differentiated(flow, op)
    return name in MASKABLE and any(r.op == "where" for r in flow.readers(op)) and _differentiated(flow, op)


def _differentiated(flow: SegmentOps, op: Op) -> bool:
    """Backward reads what it read, or what it gave: autograd kept that for its slope."""
    kept = {*op.ins, *op.outs} - {0}
    return any(later.backward and kept & set(later.ins) for later in flow.after(op))
