"""The recorded API calls as typed records, in order, one stream per training process.

Reads nothing but the frame it is given; what the calls mean together is said in `windows.py`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class Call:
    """One row of the table `calls`, None where the trace has null. `index` is its place in its stream."""

    index: int
    rank: int
    proc: int
    seq: int
    step: int
    segment: int
    call: str
    object: str | None
    target: str | None
    scaled: str | None
    value: float | None
    limit: float | None
    norm: float | None
    dtype: str | None
    params: tuple[str, ...]
    n_params: int | None
    enabled: bool | None
    autocast_dtype: str | None
    thread_main: bool | None
    error: str | None
    message: str | None
    detail: str | None
    file: str | None
    line: int | None
    function: str | None

    @property
    def place(self) -> tuple[str | None, int | None]:
        """(file, line) of the user's code."""
        return self.file, self.line

    @property
    def all_params_named(self) -> bool:
        """Whether `params` lists every parameter concerned: the recorder stops at 64 names."""
        return self.n_params is not None and self.n_params <= len(self.params)

    def has(self, word: str) -> bool:
        """Whether `detail` holds this word."""
        return word in (self.detail or "").replace(",", " ").split()


SCALAR_COLUMNS = (
    "rank", "proc", "seq", "step", "segment", "call", "object", "target", "scaled", "value", "limit", "norm", "dtype",
    "n_params", "enabled", "autocast_dtype", "thread_main", "error", "message", "detail", "file", "line",
    "function",
)  # fmt: skip
_INTS = {"rank", "proc", "seq", "step", "segment", "n_params", "line"}
_BOOLS = {"enabled", "thread_main"}
_FLOATS = {"value", "limit", "norm"}

SELECT = 'SELECT *, value IS NULL AS value_null, "limit" IS NULL AS limit_null, norm IS NULL AS norm_null FROM calls'
"""The query whose frame `read_calls` takes: a null stays apart from a NaN."""


def read_calls(frame: pd.DataFrame) -> list[tuple[Call, ...]]:
    """The streams in a frame of `SELECT`: one per training process, by (rank, proc), each by `seq`."""
    frame = frame.sort_values(["rank", "proc", "seq"], kind="stable")
    columns = [_plain(frame, name) for name in SCALAR_COLUMNS]
    params = [_names(value) for value in frame["params"]]
    streams: dict[tuple[int, int], list[Call]] = {}
    for *scalars, names in zip(*columns, params, strict=True):
        fields: dict[str, Any] = dict(zip(SCALAR_COLUMNS, scalars, strict=True))
        for key in ("rank", "proc", "seq"):
            fields[key] = fields[key] or 0
        for key in ("step", "segment"):
            fields[key] = -1 if fields[key] is None else fields[key]
        stream = streams.setdefault((fields["rank"], fields["proc"]), [])
        stream.append(Call(index=len(stream), params=names, **fields))
    return [tuple(calls) for _, calls in sorted(streams.items())]


def _plain(frame: pd.DataFrame, name: str) -> list[Any]:
    """The column as Python values, null as None; NaN of a float column is a value."""
    values = frame[name].tolist()
    if name in _FLOATS:
        return [None if null else float(v) for v, null in zip(values, frame[f"{name}_null"], strict=True)]
    kind: Any = int if name in _INTS else bool if name in _BOOLS else str
    return [None if null else kind(v) for v, null in zip(values, frame[name].isna(), strict=True)]


def _names(value: object) -> tuple[str, ...]:
    if isinstance(value, list | tuple | np.ndarray):
        return tuple(str(v) for v in value)
    return ()


def stretches_of(stream: tuple[Call, ...], counted: Sequence[int]) -> list[tuple[Call, ...]]:
    """The stream, cut where segments of `counted` (ascending) lie between two calls, but for those whose calls were
    told after all. A call in such a segment, such as the update() of the step before it, still belongs to what came
    before."""
    told = {c.segment for c in stream if c.call in ("scaler.step", "optimizer.step", "backward")}
    counted = [segment for segment in counted if segment not in told]
    found: list[list[Call]] = [[]]
    for call in stream:
        before = found[-1][-1].segment if found[-1] else call.segment
        here = bisect_left(counted, call.segment)
        if bisect_left(counted, before) < here:
            found.append([])
        found[-1].append(call if len(found) == 1 else replace(call, index=len(found[-1])))
    return [tuple(calls) for calls in found if calls]


def of_kind(calls: Iterable[Call], *kinds: str) -> list[Call]:
    """The calls whose name is one of `kinds`, in order."""
    return [c for c in calls if c.call in kinds]
