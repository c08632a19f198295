"""Ops in which a half and a float32 tensor met, so that the result and what follows is float32: where, and how much.

Follows recorded data flow; whether it was meant is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass

from ampscope.diagnose.census import Census
from ampscope.diagnose.opflow import Op, SegmentOps, elements

PROMOTING = frozenset(
    "add sub rsub mul div true_divide where addcmul addcdiv lerp maximum minimum pow cat stack".split()
)


@dataclass(frozen=True)
class Promotion:
    """`op` widened a half tensor to float32 because of a smaller float32 one. `share` is the part of the forward's
    result bytes that is float32 because of it, `wide` the shape of the float32 argument."""

    op: Op
    wide: str
    share: float


def promotions_of(census: Census) -> tuple[Promotion, ...]:
    """The promotions of one forward that start a stretch of float32, largest first."""
    flow = census.flow
    total = sum(census.bytes[op.seq] for op in flow.ops if op.phase == "forward" and not op.view) or 1.0
    found = []
    for op in flow.ops:
        wide = _widened(op)
        if wide is not None and op.phase == "forward":
            size = census.bytes[op.seq] + sum(census.bytes[x.seq] for x in _stretch(flow, op))
            found.append(Promotion(op, wide, size / total))
    return tuple(sorted(found, key=lambda p: (-p.share, p.op.seq)))


def _widened(op: Op) -> str | None:
    """Shape of the float32 argument that widened a half one of the size of the result; None where none did.

    A tensor of no dimension does not promote (torch's type promotion looks at dimensions first).
    """
    if op.op.rstrip("_") not in PROMOTING or op.out_dtypes[:1] != ("float32",) or op.from_half is None:
        return None
    size = elements(op.out_shapes[0])
    args = list(zip(op.in_dtypes, op.in_shapes, strict=False))
    if not any(d == op.from_half and elements(x) == size for d, x in args):
        return None
    small = [x for d, x in args if d == "float32" and x != "" and elements(x) < size]
    return small[0] if small else None


def _stretch(flow: SegmentOps, start: Op, most: int = 200) -> list[Op]:
    """The forward ops that compute on in float32 from what `start` made, up to the next cast to half."""
    reached = set(start.outs)
    found: list[Op] = []
    for op in flow.after(start):
        if op.phase != "forward" or len(found) >= most:
            break
        if reached & set(op.ins):
            if op.view:
                reached |= set(op.outs)
            elif op.out_dtypes[:1] == ("float32",) and not op.cast:
                reached |= set(op.outs)
                found.append(op)
    return found
