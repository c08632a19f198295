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


Key = tuple[str, tuple[Any, ...]]


class Cache:
    """Results by query text and parameters. A second page that asks the same waits for the first; others do not."""

    def __init__(self, trace: Queryable) -> None:
        self._trace = trace
        self._lock = threading.Lock()
        self._kept: OrderedDict[Key, pd.DataFrame] = OrderedDict()
        self._running: dict[Key, threading.Lock] = {}
        self._age = 0

    def frame(self, sql: str, params: tuple[Any, ...]) -> pd.DataFrame:
        """The result. Callers must not change it."""
        key = (sql, params)
        with self._lock:
            found = self._find(key)
            if found is not None:
                return found
            turn = self._running.setdefault(key, threading.Lock())
        with turn:
            with self._lock:
                found, age = self._find(key), self._age
            if found is None:
                found = self._trace.sql(sql, list(params))
                self._keep(key, found, age)
            return found

    def clear(self) -> None:
        """Forgets every result, also of queries that run now."""
        with self._lock:
            self._kept.clear()
            self._age += 1

    def _find(self, key: Key) -> pd.DataFrame | None:
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def _keep(self, key: Key, found: pd.DataFrame, age: int) -> None:
        with self._lock:
            self._running.pop(key, None)
            if age == self._age and int(found.memory_usage().sum()) <= KEEP_BYTES:
                self._kept[key] = found
                while len(self._kept) > KEEP:
                    self._kept.popitem(last=False)


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
