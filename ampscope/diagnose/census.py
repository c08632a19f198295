"""The recorded ops of single segments with their data flow, read once for all rules that follow it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from weakref import WeakKeyDictionary

import pandas as pd

from ampscope.diagnose.frames import records, whole
from ampscope.diagnose.opflow import COLUMNS, SegmentOps, segment_ops
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.troubles import Key

MOST_SEGMENTS = 6
"""Censuses of a process that are read, the last ones: what repeats is in each, and what grows has grown most."""

_SEGMENTS = (
    "SELECT o.rank, coalesce(o.proc, 0) AS proc, o.segment, any_value(s.level) AS level, "
    "bool_or(list_has_any(o.out_dtypes, ['float16', 'bfloat16'])) AS half, "
    "bool_or(o.out_nonfinite > 0 OR o.error IS NOT NULL) AS bad FROM ops o LEFT JOIN steps s ON "
    "s.rank = o.rank AND s.proc IS NOT DISTINCT FROM o.proc AND s.segment = o.segment GROUP BY ALL ORDER BY ALL"
)

_SELECTED = ", ".join(f'"{name}"' for name in (*COLUMNS, "absorbed", "host_s", "out_bytes"))


@dataclass(frozen=True)
class Sampled:
    """A segment, by (rank, proc, segment), of which ops were recorded. `level` is None where its step is not
    known; `half`: an op gave a half result; `bad`: one gave non-finite values, or raised."""

    key: Key
    level: str | None
    half: bool
    bad: bool


@dataclass(frozen=True)
class Census:
    """The ops of one segment, and by their `seq`: elements that an increment did not change (of ops that can tell),
    host seconds under the census, and bytes of the results."""

    flow: SegmentOps
    absorbed: dict[int, int]
    seconds: dict[int, float]
    bytes: dict[int, float]


class _Read:
    """What was read of one trace."""

    def __init__(self, s: Signals) -> None:
        self._signals = s
        self._censuses: dict[Key, Census | None] = {}

    @cached_property
    def sampled(self) -> tuple[Sampled, ...]:
        rows = records(self._signals.frame(_SEGMENTS)) if self._signals.rows["ops"] else []
        return tuple(
            Sampled(
                (int(r["rank"]), int(r["proc"]), int(r["segment"])),
                r["level"],
                r["half"] is True,
                r["bad"] is True,
            )
            for r in rows
        )

    @cached_property
    def levels(self) -> dict[Key, str | None]:
        return {sample.key: sample.level for sample in self.sampled}

    def census(self, key: Key) -> Census | None:
        if key not in self._censuses:
            self._censuses[key] = self._load(key)
        return self._censuses[key]

    def _load(self, key: Key) -> Census | None:
        if key not in self.levels:
            return None
        rank, proc, segment = key
        frame = self._signals.frame(
            f"SELECT {_SELECTED} FROM ops WHERE rank = {rank} AND "
            f"coalesce(proc, 0) = {proc} AND segment = {segment} ORDER BY seq LIMIT {self._signals.policy.max_op_rows}"
        )
        flow = segment_ops(frame, self.levels[key] or "census")
        if flow is None:
            return None
        absorbed = zip(frame["seq"].tolist(), (whole(v) for v in frame["absorbed"].tolist()), strict=True)
        return Census(
            flow=flow,
            absorbed={int(seq): n for seq, n in absorbed if n is not None},
            seconds=_by_seq(frame, "host_s"),
            bytes=_by_seq(frame, "out_bytes"),
        )


_cache: WeakKeyDictionary[Signals, _Read] = WeakKeyDictionary()


def _read(s: Signals) -> _Read:
    known = _cache.get(s)
    if known is None:
        known = _cache[s] = _Read(s)
    return known


def sampled_segments(s: Signals) -> tuple[Sampled, ...]:
    """The segments of which ops were recorded, by (rank, proc, segment)."""
    return _read(s).sampled


def recorded_ops(s: Signals, key: Key) -> SegmentOps | None:
    """The recorded ops of one segment as the trace has them; None when none were recorded."""
    found = _read(s).census(key)
    return None if found is None else found.flow


def censuses(s: Signals) -> tuple[Census, ...]:
    """The last censuses of each process that hold half results, in order."""
    by_process: dict[tuple[int, int], list[Key]] = {}
    for sample in sampled_segments(s):
        if sample.level == "census" and sample.half:
            by_process.setdefault(sample.key[:2], []).append(sample.key)
    last = [key for keys in by_process.values() for key in keys[-MOST_SEGMENTS:]]
    return tuple(c for c in map(_read(s).census, last) if c is not None)


def _by_seq(frame: pd.DataFrame, name: str) -> dict[int, float]:
    """A numeric column by seq; a missing value counts as 0."""
    return dict(
        zip(map(int, frame["seq"].tolist()), frame[name].fillna(0.0).astype(float).tolist(), strict=True)
    )
