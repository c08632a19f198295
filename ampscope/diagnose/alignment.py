"""Finds the ops of an autograd graph in an earlier census of the same program, to learn their lines and constants.

Matches names, dtypes and shapes in order; takes no value from the census.
"""

from __future__ import annotations

from dataclasses import replace

from ampscope.diagnose.opflow import Op, SegmentOps

AHEAD = 80
"""Ops of the census that may lie between two neighbours of the graph: those that need no gradient."""


def named_like(flow: SegmentOps, census: SegmentOps) -> SegmentOps:
    """`flow` with file, line, function, module and Python numbers of the ops that the census has in the same order.

    The graph holds the ops that need a gradient, so that it is a part of the census in order. Where a batch is of
    another size, the first dimension differs.
    """
    forward = [op for op in census.ops if op.phase in ("forward", "other") and not op.error]
    place = 0
    ops: list[Op] = []
    for op in flow.ops:
        found = next(
            (i for i in range(place, min(len(forward), place + AHEAD)) if _same(op, forward[i])), None
        )
        if found is None:
            ops.append(op)
            continue
        place = found + 1
        ops.append(_named(op, forward[found]))
    return replace(flow, ops=tuple(ops))


def _same(op: Op, known: Op) -> bool:
    if op.op.strip("_") != known.op.strip("_") or op.out_dtypes != known.out_dtypes:
        return False
    shapes = zip(op.out_shapes, known.out_shapes, strict=False)
    return all(a == b or (a.partition("x")[2] == b.partition("x")[2] and "x" in a + b) for a, b in shapes)


def _named(op: Op, known: Op) -> Op:
    return replace(
        op,
        op=known.op,
        module=known.module or op.module,
        file=known.file,
        line=known.line,
        function=known.function,
        scalars=known.scalars or op.scalars,
        cast=known.cast,
        cast_source=known.cast_source,
    )
