"""Decaying averages in optimizer state held in half precision, as the ops of the optimizer's step show them: whether
the decay and the increment still change what is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ampscope.diagnose.frames import Row, items, number, records, text, whole
from ampscope.diagnose.opflow import elements
from ampscope.diagnose.signals import HALF, Signals

QUERY = (
    "SELECT rank, coalesce(proc, 0) AS proc, step, segment, seq, op, scalars, absorbed, in_zeros, in_dtypes, "
    "out_shapes, tensor_ids, file, line FROM ops WHERE phase = 'optimizer' AND absorbed IS NOT NULL "
    "ORDER BY rank, proc, segment, seq LIMIT {limit}"
)

LEAST_DECAY = 0.9


@dataclass(frozen=True)
class Decay:
    """All averages of one decay and dtype in one census: shares of their elements, with something to change, that the
    multiplication by the decay and the addition of the new value left as they were."""

    rank: int
    proc: int
    step: int
    segment: int
    dtype: str
    decay: float
    kept_by_decay: float
    kept_by_sum: float
    file: str | None
    line: int | None

    @property
    def stands(self) -> float:
        """Share that neither of the two changed."""
        return min(self.kept_by_decay, self.kept_by_sum)


@dataclass
class _Total:
    first: Row
    absorbed: list[float]
    asked: list[float]


def decays_of(s: Signals) -> tuple[Decay, ...]:
    """The decaying averages of every census, in order: `x.mul_(decay)` and then an addition that is weighted by
    1 - decay to the same storage."""
    if not s.rows["ops"]:
        return ()
    totals: dict[tuple[int, int, int, str, float], _Total] = {}
    waiting: dict[int, tuple[Row, float]] = {}
    segment = None
    for row in records(s.frame(QUERY.format(limit=s.policy.max_op_rows))):
        if row["segment"] != segment:
            segment = row["segment"]
            waiting.clear()
        name = str(row["op"]).removeprefix("aten::").removeprefix("_foreach_").rstrip("_")
        ids, dtypes, scalars = items(row["tensor_ids"]), items(row["in_dtypes"]), items(row["scalars"])
        if not ids or not dtypes or str(dtypes[0]) not in HALF or not scalars:
            continue
        key, factor = int(ids[0]), float(scalars[-1])
        if name == "mul" and LEAST_DECAY < factor < 1.0:
            waiting[key] = (row, factor)
        elif name in ("add", "addcmul") and key in waiting:
            first, decay = waiting.pop(key)
            if abs(decay + factor - 1.0) <= 1e-3 * (1.0 - decay):
                at = (int(row["rank"]), int(row["proc"]), int(row["segment"]), str(dtypes[0]), decay)
                total = totals.setdefault(at, _Total(first, [0.0, 0.0], [0.0, 0.0]))
                for i, part in enumerate((first, row)):
                    total.absorbed[i] += number(part["absorbed"])
                    total.asked[i] += _asked(part)
    return tuple(_decay(at, total) for at, total in totals.items())


def _asked(row: Row) -> float:
    """Elements that the op had something to change in, at least."""
    numel = sum(elements(str(x)) for x in items(row["out_shapes"]))
    return max(number(row["absorbed"]), numel - number(row["in_zeros"]))


def _decay(at: tuple[int, int, int, str, float], total: _Total) -> Decay:
    rank, proc, segment, dtype, decay = at
    first = total.first
    shares = [a / n if n else 0.0 for a, n in zip(total.absorbed, total.asked, strict=True)]
    place = (text(first["file"]), whole(first["line"]))
    return Decay(rank, proc, int(first["step"]), segment, dtype, decay, shares[0], shares[1], *place)


def standing(decays: Sequence[Decay], share: float) -> tuple[Decay, ...]:
    """Of each average the last two censuses, where it stood still in both; empty for one that moves."""
    found: list[Decay] = []
    groups: dict[tuple[int, int, str, float], list[Decay]] = {}
    for d in decays:
        groups.setdefault((d.rank, d.proc, d.dtype, d.decay), []).append(d)
    for group in groups.values():
        last = group[-2:]
        if len(last) == 2 and all(d.stands >= share for d in last):
            found += last
    return tuple(found)
