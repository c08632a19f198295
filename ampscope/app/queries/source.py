"""One training process of a run as the pages see it: SQL in, frames out, each result kept until the trace changes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any, Protocol

import pandas as pd

from ampscope.trace.schema import TABLES

KEEP = 256
"""Results kept per run, least recently used goes first."""

KEEP_BYTES = 64_000_000
"""A larger result is not kept."""


class Queryable(Protocol):
    """What of `ampscope.trace.reader.Trace` this package needs."""

    def sql(self, query: str, params: Any = ...) -> pd.DataFrame: ...


class Cache:
    """Results by query text and parameters, one query at a time: a second page that asks the same waits for it."""

    def __init__(self, trace: Queryable) -> None:
        self._trace = trace
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, tuple[Any, ...]], pd.DataFrame] = OrderedDict()

    def frame(self, sql: str, params: tuple[Any, ...]) -> pd.DataFrame:
        """The result. Callers must not change it."""
        with self._lock:
            found = self._kept.get((sql, params))
            if found is None:
                found = self._trace.sql(sql, list(params))
                if int(found.memory_usage().sum()) <= KEEP_BYTES:
                    self._kept[sql, params] = found
                if len(self._kept) > KEEP:
                    self._kept.popitem(last=False)
            else:
                self._kept.move_to_end((sql, params))
            return found

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()


class Source:
    """Rows of one (rank, proc). In its SQL `{tensors}` is that table, restricted to this process."""

    def __init__(self, cache: Cache, rank: int = 0, proc: int = 0) -> None:
        self._cache = cache
        self.rank = rank
        self.proc = proc

    def frame(self, sql: str, *params: Any) -> pd.DataFrame:
        """The result of `sql`; do not change it: it is shared."""
        for name in TABLES:
            if "{" + name + "}" in sql:
                part = f"(SELECT * FROM {name} WHERE rank = {self.rank:d} AND proc = {self.proc:d})"
                sql = sql.replace("{" + name + "}", part)
        return self._cache.frame(sql, params)

    def value(self, sql: str, *params: Any) -> Any:
        """First column of the first row; None when there is no row or it is null."""
        frame = self.frame(sql, *params)
        if frame.empty:
            return None
        found: Any = frame.iat[0, 0]
        return None if pd.isna(found) else found
