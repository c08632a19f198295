"""The recorded ops of the last censuses with their data flow, read once for all rules that follow it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import pandas as pd

from ampscope.diagnose.opflow import SegmentOps, segment_ops
from ampscope.diagnose.signals import Signals

MOST_SEGMENTS = 6
"""Censuses of a process that are read, the last ones: what repeats is in each, and what grows has grown most."""

CHOICE = (
    "SELECT DISTINCT o.rank, coalesce(o.proc, 0) AS proc, o.segment FROM ops o JOIN steps s ON s.rank = o.rank AND "
    "s.proc IS NOT DISTINCT FROM o.proc AND s.segment = o.segment WHERE s.level = 'census' AND "
    "(list_contains(o.out_dtypes, 'float16') OR list_contains(o.out_dtypes, 'bfloat16')) ORDER BY ALL"
)
"""Censuses in which any op gave a half result."""


@dataclass(frozen=True)
class Census:
    """The ops of one segment, and by their `seq`: elements that an increment did not change (of ops that can tell),
    host seconds under the census, and bytes of the results."""

    flow: SegmentOps
    absorbed: dict[int, int]
    seconds: dict[int, float]
    bytes: dict[int, float]


_cache: WeakKeyDictionary[Signals, tuple[Census, ...]] = WeakKeyDictionary()


def censuses(s: Signals) -> tuple[Census, ...]:
    """The last censuses of each process that hold half results, in order."""
    known = _cache.get(s)
    if known is None:
        known = _cache[s] = tuple(_read(s)) if s.rows["ops"] else ()
    return known


def _read(s: Signals) -> Iterator[Census]:
    for _, group in s.frame(CHOICE).groupby(["rank", "proc"], sort=True):
        for rank, proc, segment in list(group.itertuples(index=False, name=None))[-MOST_SEGMENTS:]:
            frame = s.frame(
                f"SELECT * FROM ops WHERE rank = {rank} AND coalesce(proc, 0) = {proc} AND segment = {segment} "
                f"ORDER BY seq LIMIT {s.policy.max_op_rows}"
            )
            flow = segment_ops(frame, "census")
            if flow is not None:
                yield Census(
                    flow=flow,
                    absorbed={q: int(a) for q, a in _column(frame, "absorbed", None).items()},
                    seconds=_column(frame, "host_s", 0.0),
                    bytes=_column(frame, "out_bytes", 0.0),
                )


def _column(frame: pd.DataFrame, name: str, missing: float | None) -> dict[int, float]:
    """A numeric column by seq; rows without a value are left out unless `missing` says what they count as."""
    values = frame[name] if missing is None else frame[name].fillna(missing)
    known = values.notna()
    return {
        int(q): float(v)
        for q, v in zip(frame.loc[known, "seq"].to_list(), values[known].to_list(), strict=True)
    }
