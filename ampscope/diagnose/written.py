"""Half values whose dtype the script itself fixed by a cast, where no setting of autocast reaches it.

Such a cast is an op of its own where it changes something. Where autocast had made the tensor half before, it is none,
and only the line says that it is written there: under another autocast dtype it would undo that.
"""

from __future__ import annotations

from collections.abc import Sequence

from ampscope.diagnose.finding import Change
from ampscope.diagnose.opflow import Op, SegmentOps
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.text import listed

MOST_OPS = 400
"""Ops before an op among which the casts of its arguments are looked for."""

SEEN = "SELECT DISTINCT file, line FROM ops WHERE \"cast\" = 'user' AND list_contains(out_dtypes, 'float16')"


def written_casts(s: Signals, flow: SegmentOps, op: Op) -> tuple[Op, ...]:
    """The ops at whose lines casts to float16 are written, one a line, if such casts fix the dtype of every half
    argument of `op`: those, and all on the way to them. Empty where one of the arguments is half by autocast, or for a
    reason that was not recorded.
    """
    if flow.graph or op.from_half is None:
        return ()
    seen = {(str(f), int(n)) for f, n in s.frame(SEEN).dropna().itertuples(index=False, name=None)}
    found: dict[tuple[str | None, int | None], Op] = {}
    todo, known = [op], {op.seq}
    while todo:
        here = todo.pop()
        for dtype, identity in zip(here.in_dtypes, here.ins, strict=True):
            if dtype != "float16":
                continue
            writer = flow.writer(identity, here) if identity else None
            if writer is None or writer.cast == "autocast" or len(known) > MOST_OPS:
                return ()
            if _fixes(writer, seen):
                found.setdefault((writer.file, writer.line), writer)
            elif writer.from_half is None:
                return ()
            elif writer.seq not in known:
                known.add(writer.seq)
                todo.append(writer)
    for _, before in flow.ancestors(op, MOST_OPS):
        if _fixes(before, seen):
            found.setdefault((before.file, before.line), before)
    return tuple(sorted(found.values(), key=lambda o: o.line or 0))


def removal(s: Signals, casts: Sequence[Op]) -> tuple[str, Change]:
    """The advice to remove them, and the change to read. No override can do it."""
    lines = list(dict.fromkeys(f"{(op.file or '').rpartition('/')[2]}:{op.line}" for op in casts))
    then = (
        "autocast in bfloat16, whose range is that of float32, can take over"
        if s.bf16_native and s.half_autocast
        else "the value stays float32 where autocast leaves it so"
    )
    advice = (
        f"Remove the casts to float16 that the script itself writes at {listed(lines)}, which no setting of autocast "
        f"reaches: without them {then}."
    )
    diff = "".join(f"# {line}\n- x.half()\n+ x\n" for line in lines)
    return advice, Change(diff=diff)


def _fixes(writer: Op, seen: set[tuple[str, int]]) -> bool:
    """It is a cast that the script wrote, or its line holds one that had nothing to do."""
    if writer.cast == "user":
        return True
    return writer.half_casts > 0 and (writer.file or "", writer.line or 0) not in seen
