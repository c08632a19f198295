"""The parts of a run as views of a DuckDB that can do nothing else: no files but these parts, no network, no
extensions, no settings, no Python variables, and SELECT only.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd

from ampscope.errors import AmpscopeError
from ampscope.trace.integrity import CheckedPart
from ampscope.trace.schema import TABLES, Table

Params = Sequence[object] | Mapping[str, object] | None

_SQL_TYPE = {
    "int16": "SMALLINT",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "float64": "DOUBLE",
    "bool": "BOOLEAN",
    "string": "VARCHAR",
    "dict": "VARCHAR",
}
_RANK = "CAST(regexp_extract(filename, 'rank=([0-9]+)/[^/]*$', 1) AS INTEGER)"


SMALL = 20_000
"""Rows of a table that is read once and kept: most queries take longer to open the files than to run."""


class Database:
    """An in-memory DuckDB over a fixed set of sound parts, one table or view per table of the schema. Thread-safe."""

    def __init__(self, parts: Iterable[CheckedPart]) -> None:
        self._lock = threading.Lock()
        by_table: defaultdict[str, list[CheckedPart]] = defaultdict(list)
        for checked in parts:
            by_table[checked.part.table].append(checked)
        self._connection = duckdb.connect(":memory:")
        self._lock_down([c.part.path for group in by_table.values() for c in group])
        for table in TABLES.values():
            held = by_table[table.name]
            what = f'"{table.name}" AS {_select_all(table, held)}'
            if sum(c.rows for c in held) <= SMALL:
                # A part that has changed since it was checked fails in the query, where the reader expects it.
                with contextlib.suppress(duckdb.Error):
                    self._connection.execute(f"CREATE TABLE {what}")
                    continue
            self._connection.execute(f"CREATE VIEW {what}")

    def query(self, query: str, params: Params = None) -> pd.DataFrame:
        """The result of one SELECT. Raises AmpscopeError for any other statement, duckdb.Error for a wrong
        one."""
        with self._lock:
            cursor = self._connection.cursor()
        try:
            statements = cursor.extract_statements(query)
            if len(statements) != 1 or statements[0].type not in (_SELECT, _EXPLAIN):
                raise AmpscopeError("A trace is read with one SELECT statement; nothing else is run.")
            return _plain(cursor.execute(statements[0], params).df())
        finally:
            cursor.close()

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def _lock_down(self, files: list[Path]) -> None:
        spill = Path(tempfile.gettempdir()) / f"ampscope-{secrets.token_hex(8)}"
        for setting in (
            f"temp_directory = {_quote(str(spill))}",
            f"allowed_paths = [{', '.join(_quote(str(f)) for f in files)}]",
            "python_enable_replacements = false",
            "autoload_known_extensions = false",
            "autoinstall_known_extensions = false",
            "parquet_metadata_cache = true",
            "enable_external_access = false",
            "lock_configuration = true",
        ):
            self._connection.execute(f"SET {setting}")


_SELECT: Any = duckdb.StatementType.SELECT
_EXPLAIN: Any = duckdb.StatementType.EXPLAIN


def _plain(frame: pd.DataFrame) -> pd.DataFrame:
    """Missing lists as None: pandas' NA cannot be asked whether it is true."""
    for name in [n for n, kind in frame.dtypes.items() if pd.api.types.is_object_dtype(kind)]:
        values = frame[name]
        if any(v is pd.NA for v in values):
            frame[name] = pd.Series([None if v is pd.NA else v for v in values], values.index, dtype=object)
    return frame


def sql_type(kind: str) -> str:
    """DuckDB's name for a column type of the schema."""
    return f"{_SQL_TYPE[kind[5:-1]]}[]" if kind.startswith("list<") else _SQL_TYPE[kind]


def _select_all(table: Table, parts: list[CheckedPart]) -> str:
    """SELECT that gives `rank` and every column of `table`. Parts with the same columns are read together, so
    that DuckDB opens one footer instead of all of them to learn the types."""
    groups: defaultdict[tuple[str, ...], list[CheckedPart]] = defaultdict(list)
    for checked in parts:
        groups[checked.columns].append(checked)
    ranks = {c.part.rank for c in parts}
    rank = f"CAST({ranks.pop()} AS INTEGER)" if len(ranks) == 1 else _RANK
    selects = [_select(table, present, rank, group) for present, group in groups.items()]
    return (
        " UNION ALL ".join(selects)
        if selects
        else f"{_select(table, (), 'CAST(NULL AS INTEGER)', [])} LIMIT 0"
    )


def _select(table: Table, present: tuple[str, ...], rank: str, group: list[CheckedPart]) -> str:
    columns = [f"{rank} AS rank"]
    for column in table.columns:
        value = f'"{column.name}"' if column.name in present else "NULL"
        columns.append(f'CAST({value} AS {sql_type(column.type)}) AS "{column.name}"')
    files = ", ".join(_quote(str(c.part.path)) for c in group)
    source = f" FROM read_parquet([{files}], hive_partitioning = false)" if group else ""
    return f"SELECT {', '.join(columns)}{source}"


def _quote(text: str) -> str:
    return "'" + re.sub("'", "''", text) + "'"
