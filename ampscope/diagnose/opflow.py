"""The data flow of one recorded segment: which op wrote what another one reads, and where non-finite values went.

Reads rows of the table ops; draws no conclusion about what is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from ampscope.diagnose.frames import Row, items, null, numbers, real, records, text, texts, whole
from ampscope.diagnose.transitions import HALF_TYPES

VIEWS = frozenset(
    (
        "view _unsafe_view reshape t transpose permute expand slice select unsqueeze squeeze unbind split "
        "split_with_sizes chunk detach alias lift_fresh as_strided diagonal unfold narrow movedim swapaxes "
        "_reshape_alias view_as expand_as real imag"
    ).split()
)
COPIES = frozenset(
    (
        "clone _to_copy copy_ index gather cat stack index_select embedding contiguous flip roll repeat "
        "select_backward slice_backward neg abs take masked_select constant_pad_nd dropout native_dropout "
        "lift_fresh_copy scatter repeat_interleave tril triu max min amax amin sort topk "
        "_local_scalar_dense to squeeze_copy where"
    ).split()
)
"""Ops that hand their values on, at most with another dtype, sign or order."""


@dataclass(frozen=True)
class Op:
    """One row of the table ops. `op` has no namespace; `ins` and `outs` are identities of storages; counts are
    elements. `in_known` tells zero from unknown for what is counted of the arguments. `shadow_*` are None where
    float32 was not tried."""

    seq: int
    phase: str
    op: str
    module: str | None
    file: str | None
    line: int | None
    function: str | None
    in_dtypes: tuple[str, ...]
    out_dtypes: tuple[str, ...]
    in_shapes: tuple[str, ...]
    out_shapes: tuple[str, ...]
    scalars: tuple[float, ...]
    ins: tuple[int, ...]
    outs: tuple[int, ...]
    in_known: bool
    in_nonfinite: int
    out_nonfinite: int
    out_nan: int
    in_zeros: int
    out_zeros: int
    in_amax: float | None
    in_amin: float | None
    out_amax: float | None
    shadow_amax: float | None
    shadow_nonfinite: int | None
    shadow_flushed: int | None
    shadow_sqnr_db: float | None
    cast: str | None
    cast_source: str | None
    half_casts: int
    error: str | None
    reached: str | None

    @property
    def to_half(self) -> str | None:
        """The half dtype of its results, if they have one."""
        return next((d for d in self.out_dtypes if d in HALF_TYPES), None)

    @property
    def from_half(self) -> str | None:
        """The half dtype among its arguments, if there is one."""
        return next((d for d in self.in_dtypes if d in HALF_TYPES), None)

    @property
    def view(self) -> bool:
        return self.op in VIEWS

    @property
    def born(self) -> bool:
        """It made non-finite values of finite ones."""
        return self.out_nonfinite > 0 and self.in_nonfinite == 0

    @property
    def backward(self) -> bool:
        return self.phase == "backward"


@dataclass(frozen=True)
class SegmentOps:
    """The recorded ops of one segment, in order: all of them in a census, what was kept of them under watch, and at
    any other level what autograd still knew of the forward when its loss was not finite (`graph`)."""

    rank: int
    proc: int
    segment: int
    step: int
    level: str
    ops: tuple[Op, ...]

    @property
    def watched(self) -> bool:
        """Not everything was recorded; where it mattered it was said how far a value went."""
        return self.level != "census"

    @property
    def graph(self) -> bool:
        """Read from the autograd graph: no lines, and only the values that autograd kept."""
        return self.level not in ("census", "watch")

    @cached_property
    def _writers(self) -> dict[int, list[int]]:
        """Places in `ops` of the ops that wrote each storage; views write nothing."""
        writers: dict[int, list[int]] = {}
        for place, op in enumerate(self.ops):
            if op.view:
                continue
            for identity in op.outs:
                writers.setdefault(identity, []).append(place)
        return writers

    @cached_property
    def _places(self) -> dict[int, int]:
        return {op.seq: place for place, op in enumerate(self.ops)}

    def writer(self, identity: int, before: Op) -> Op | None:
        """The last recorded op that wrote a storage before `before`; None when it came from outside."""
        limit = self._places[before.seq]
        found = None
        for place in self._writers.get(identity, ()):
            if place >= limit:
                break
            found = self.ops[place]
        return found

    def writers(self, op: Op) -> list[Op | None]:
        """For each argument of `op` the op that wrote it, None for one from outside."""
        return [self.writer(identity, op) if identity else None for identity in op.ins]

    def ancestors(self, op: Op, most: int = 24) -> Iterator[tuple[int, Op]]:
        """(distance, op) for what led to the arguments of `op`, nearest first, at most `most` ops."""
        seen: set[int] = {op.seq}
        front = [(1, w) for w in self.writers(op) if w is not None]
        while front and most:
            distance, here = front.pop(0)
            if here.seq in seen:
                continue
            seen.add(here.seq)
            most -= 1
            yield distance, here
            front.extend((distance + 1, w) for w in self.writers(here) if w is not None)

    def sources(self, op: Op, argument: int | None = None) -> Iterator[Op]:
        """The nearest ops that computed the arguments of `op` (or one of them): ops that only hand values on are
        looked through."""
        writers = self.writers(op)
        front = [w for i, w in enumerate(writers) if w is not None and argument in (None, i)]
        seen: set[int] = set()
        while front:
            here = front.pop(0)
            if here.seq in seen:
                continue
            seen.add(here.seq)
            if here.op in COPIES:
                front.extend(w for w in self.writers(here) if w is not None)
                if not any(w is not None for w in self.writers(here)):
                    yield here
            else:
                yield here

    def after(self, op: Op) -> tuple[Op, ...]:
        """The ops that follow it."""
        return self.ops[self._places[op.seq] + 1 :]

    def readers(self, op: Op) -> Iterator[Op]:
        """Ops that read what `op` wrote, until it is overwritten; through views."""
        mine = set(op.outs)
        for later in self.after(op):
            if mine & set(later.ins):
                yield later
            if not later.view:
                mine -= set(later.outs) - set(later.ins)
            if not mine:
                return

    def spread(self, op: Op) -> Iterator[Op]:
        """The ops to which the non-finite values of `op` went, in order, whose results hold some of them."""
        bad = set(op.outs)
        for later in self.after(op):
            hit = bool(bad & set(later.ins))
            if hit and (later.view or later.out_nonfinite):
                bad |= set(later.outs)
                if not later.view:
                    yield later
            elif hit:
                yield later
            elif not later.view and later.out_nonfinite == 0:
                bad -= set(later.outs)

    def reached(self, op: Op) -> str | None:
        """How far the non-finite values of `op` went: loss or gradient; None: nowhere that matters.

        The watch followed them while it ran. In a census, where everything was recorded, it is found here: into
        the seed of backward or into a backward op, or from backward into the optimizer or the scaler.
        """
        if self.watched or op.reached is not None:
            return op.reached
        for later in self.spread(op):
            if not op.backward and (later.backward or later.op == "ones_like"):
                return "loss"
            if op.backward and (later.phase in ("optimizer", "other") or "non_finite_check" in later.op):
                return "gradient"
        return None


def _count(value: Any) -> int:
    return whole(value) or 0


_FIELDS: dict[str, Callable[[Any], Any]] = {
    "seq": _count,
    "phase": lambda value: text(value) or "other",
    "op": lambda value: (text(value) or "").removeprefix("aten::"),
    **dict.fromkeys(("module", "file", "function", "cast", "cast_source", "error", "reached"), text),
    **dict.fromkeys(("in_dtypes", "out_dtypes", "in_shapes", "out_shapes"), texts),
    "scalars": numbers,
    **dict.fromkeys(
        ("in_nonfinite", "out_nonfinite", "out_nan", "in_zeros", "out_zeros", "half_casts"), _count
    ),
    **dict.fromkeys(("line", "shadow_nonfinite", "shadow_flushed"), whole),
    **dict.fromkeys(("in_amax", "in_amin", "out_amax", "shadow_amax", "shadow_sqnr_db"), real),
}
"""Fields of Op that are columns of the table, and how a cell is read."""

COLUMNS = ["rank", "proc", "segment", "step", "tensor_ids", *_FIELDS]
"""What `segment_ops` reads of the table ops."""


def segment_ops(frame: pd.DataFrame, level: str) -> SegmentOps | None:
    """The ops in rows of one segment ordered by seq; None for none."""
    if frame.empty:
        return None
    rows = records(frame[COLUMNS])
    first = rows[0]
    return SegmentOps(
        rank=int(first["rank"]),
        proc=whole(first["proc"]) or 0,
        segment=int(first["segment"]),
        step=whole(first["step"]) or 0,
        level=level,
        ops=tuple(_op(row) for row in rows),
    )


def _op(row: Row) -> Op:
    fields: Row = {name: read(row[name]) for name, read in _FIELDS.items()}
    arguments = len(fields["in_dtypes"])
    ids = tuple(int(i) for i in items(row["tensor_ids"]))
    fields.update(ins=ids[:arguments], outs=ids[arguments:], in_known=not null(row["in_nonfinite"]))
    return Op(**fields)


def elements(shape: str) -> int:
    """Number of elements of a shape as the trace writes it: `16x32`, empty for a 0-d tensor."""
    return math.prod(int(n) for n in shape.split("x")) if shape else 1
