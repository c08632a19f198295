"""Rows of a trace as plain Python values, in which "not measured" (null) and NaN stay apart, as pandas cannot."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pandas as pd

from ampscope.trace.records import RunInfo

Row = dict[str, Any]
Params = Sequence[object] | Mapping[str, object] | None


class TraceView(Protocol):
    """What a report needs of an opened trace (`ampscope.trace.reader.Trace`)."""

    @property
    def info(self) -> RunInfo: ...

    def sql(self, query: str, params: Params = None) -> pd.DataFrame: ...


@dataclass(frozen=True)
class Stream:
    """The training process that a report shows in detail, and how many there are."""

    rank: int = 0
    proc: int = 0
    ranks: int = 1
    procs: int = 1

    @property
    def where(self) -> str:
        """SQL condition on rank and proc."""
        return f"rank = {self.rank:d} AND proc = {self.proc:d}"

    def of(self, alias: str) -> str:
        """The same for a table that the query calls `alias`."""
        return f"{alias}.rank = {self.rank:d} AND {alias}.proc = {self.proc:d}"

    @property
    def name(self) -> str:
        """`rank 0 of 4`, or nothing when there is only one process."""
        parts = [f"rank {self.rank} of {self.ranks}"] if self.ranks > 1 else []
        parts += [f"process {self.proc} of {self.procs}"] if self.procs > 1 else []
        return ", ".join(parts)


def fetch(trace: TraceView, query: str, params: Params = None) -> list[Row]:
    """The rows of a SELECT, in its order, each as {column: value}."""
    frame = trace.sql(f"SELECT q AS r FROM ({query}) AS q", params)
    return list(frame["r"])


def first(trace: TraceView, query: str, params: Params = None) -> Row:
    """The first row of a SELECT, or an empty one."""
    return next(iter(fetch(trace, query, params)), {})


def main_stream(trace: TraceView) -> Stream:
    """The process of the lowest rank that took most segments."""
    rows = fetch(
        trace,
        "SELECT rank, proc, count(*) AS n FROM steps GROUP BY ALL ORDER BY rank, n DESC, proc",
    )
    if not rows:
        return Stream()
    lead = rows[0]
    same_rank = sum(r["rank"] == lead["rank"] for r in rows)
    return Stream(lead["rank"], lead["proc"], len({r["rank"] for r in rows}), same_rank)


def finite(value: float | None) -> float | None:
    """`value`, or None when it is NaN or inf."""
    return value if value is not None and math.isfinite(value) else None


def quoted(text: str) -> str:
    """An SQL string literal."""
    return "'" + text.replace("'", "''") + "'"
