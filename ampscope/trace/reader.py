"""Opens a trace for reading: SQL over its tables, what is known of the run, and what of it is damaged.

Reads live, complete and cut-off runs alike and changes nothing on disk. Used by diagnosis, reports and the
dashboard; never imported in the training process.
"""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType

import duckdb
import pandas as pd

from ampscope.errors import AmpscopeError
from ampscope.trace.database import Database, Params
from ampscope.trace.integrity import CheckedPart, DamagedPart, Integrity, assess, check_parts, readable
from ampscope.trace.locate import DEFAULT_ROOT, find_run, list_runs
from ampscope.trace.records import RunInfo
from ampscope.trace.runinfo import read_run
from ampscope.trace.schema import TABLES

__all__ = ["DamagedPart", "Integrity", "Trace", "find_run", "list_runs", "open_trace"]

_TRIES = 20
_FILE_ERRORS = (duckdb.IOException, duckdb.InvalidInputException, duckdb.PermissionException)


def open_trace(path: str | Path | None = None, root: str | Path = DEFAULT_ROOT) -> Trace:
    """The trace of the run that `path` names: its directory, a path inside it, a folder of runs (the latest
    then), or None for the latest run below `root`.

    Raises AmpscopeError when there is no run, or it was written with a newer major schema.
    """
    return Trace(find_run(path, root))


class Trace:
    """One run, opened. Safe to use from several threads; a context manager.

    >>> with open_trace() as trace:
    ...     trace.sql("SELECT step, loss FROM steps WHERE skipped ORDER BY step")
    """

    def __init__(self, run_dir: Path) -> None:
        self.path = run_dir
        self._lock = threading.RLock()
        self._database: Database | None = None
        self._checked: list[CheckedPart] = []
        self._rows: dict[str, int] = {}
        self.info: RunInfo
        self.integrity: Integrity
        self._load()

    def sql(self, query: str, params: Params = None) -> pd.DataFrame:
        """The result of one SELECT over the views `steps`, `tensors`, `updates`, ...: every table of the
        schema is there with all its columns, empty or null where nothing was recorded, and `rank` besides.

        `params` fills `?` by a sequence, or `$name` by a mapping. Integer and boolean columns that hold null
        come with pandas' nullable types (Int64, boolean), missing numbers as NaN, missing lists as None. The
        sum of an integer column is float64 unless it is cast to BIGINT. Raises duckdb.Error for a wrong
        query, AmpscopeError for anything but one SELECT.
        """
        for _ in range(_TRIES):
            database = self._open()
            try:
                return database.query(query, params)
            except _FILE_ERRORS:
                # A part that changed or went away under the query, by a compaction for instance, is no fault
                # of it.
                self.refresh()
                if self._database is database:
                    raise
        return self._open().query(query, params)

    def rows(self, table: str) -> int:
        """Readable rows of `table`, without a query. Raises KeyError for a table that the schema does not
        name."""
        return self._rows.get(TABLES[table].name, 0)

    def has(self, table: str) -> bool:
        """Whether `table` holds a readable row."""
        return self.rows(table) > 0

    def refresh(self) -> bool:
        """Take in what changed on disk since: new parts of a live run, its state. True when there are other
        parts to read than before. Queries that run meanwhile end on the old ones."""
        with self._lock:
            self._open()
            return self._load()

    def close(self) -> None:
        """Idempotent. Later queries raise AmpscopeError."""
        with self._lock:
            if self._database is not None:
                self._database.close()
            self._database = None

    def __enter__(self) -> Trace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self) -> Database:
        database = self._database
        if database is None:
            raise AmpscopeError(f"The trace {self.path} was closed.")
        return database

    def _load(self) -> bool:
        with self._lock:
            self.info = read_run(self.path)
            checked = check_parts(self.path, self._checked)
            kept = readable(checked)
            changed = self._database is None or kept != readable(self._checked)
            self.integrity = assess(self.path, checked, self.info.processes)
            self._checked = checked
            if changed:
                self._rows = {}
                for c in kept:
                    self._rows[c.part.table] = self._rows.get(c.part.table, 0) + c.rows
                self._database = Database(kept)
            return changed
