"""The data flow of one recorded segment: which op wrote what another one reads, and where non-finite values went.

Reads rows of the table ops; draws no conclusion about what is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

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


def segment_ops(frame: pd.DataFrame, level: str) -> SegmentOps | None:
    """The ops in rows of one segment ordered by seq; None for none."""
    if frame.empty:
        return None
    first = frame.iloc[0]
    ops = tuple(_op({str(k): v for k, v in row.items()}) for row in frame.to_dict("records"))
    return SegmentOps(
        rank=int(first["rank"]),
        proc=_int(first["proc"]) or 0,
        segment=int(first["segment"]),
        step=_int(first["step"]) or 0,
        level=level,
        ops=ops,
    )


def _op(row: dict[str, object]) -> Op:
    ids = [int(str(i)) for i in _items(row["tensor_ids"])]
    in_dtypes = _texts(row["in_dtypes"])
    arguments = len(in_dtypes)
    return Op(
        seq=_int(row["seq"]) or 0,
        phase=_text(row["phase"]) or "other",
        op=(_text(row["op"]) or "").removeprefix("aten::"),
        module=_text(row["module"]),
        file=_text(row["file"]),
        line=_int(row["line"]),
        function=_text(row["function"]),
        in_dtypes=in_dtypes,
        out_dtypes=_texts(row["out_dtypes"]),
        in_shapes=_texts(row["in_shapes"]),
        out_shapes=_texts(row["out_shapes"]),
        scalars=tuple(float(str(v)) for v in _items(row["scalars"])),
        ins=tuple(ids[:arguments]),
        outs=tuple(ids[arguments:]),
        in_known=_int(row["in_nonfinite"]) is not None,
        in_nonfinite=_int(row["in_nonfinite"]) or 0,
        out_nonfinite=_int(row["out_nonfinite"]) or 0,
        out_nan=_int(row["out_nan"]) or 0,
        in_zeros=_int(row["in_zeros"]) or 0,
        out_zeros=_int(row["out_zeros"]) or 0,
        in_amax=_float(row["in_amax"]),
        in_amin=_float(row["in_amin"]),
        out_amax=_float(row["out_amax"]),
        shadow_amax=_float(row["shadow_amax"]),
        shadow_nonfinite=_int(row["shadow_nonfinite"]),
        shadow_flushed=_int(row["shadow_flushed"]),
        shadow_sqnr_db=_float(row["shadow_sqnr_db"]),
        cast=_text(row["cast"]),
        cast_source=_text(row["cast_source"]),
        half_casts=_int(row["half_casts"]) or 0,
        error=_text(row["error"]),
        reached=_text(row["reached"]),
    )


def elements(shape: str) -> int:
    """Number of elements of a shape as the trace writes it: `16x32`, empty for a 0-d tensor."""
    return math.prod(int(n) for n in shape.split("x")) if shape else 1


def _items(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple | np.ndarray) else []


def _texts(value: object) -> tuple[str, ...]:
    return tuple(str(v) for v in _items(value))


def _text(value: object) -> str | None:
    return None if value is None or value is pd.NA or value != value else str(value)


def _int(value: object) -> int | None:
    text = _text(value)
    return None if text is None else int(float(text))


def _float(value: object) -> float | None:
    text = _text(value)
    return None if text is None else float(text)
