"""Rows of a trace without private text: what of each column may be seen, and how a table is read in pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ampscope.report.query import Row, TraceView, fetch, first
from ampscope.report.redact import Redactor
from ampscope.trace.schema import TABLES, Table

PATHS = frozenset({"file"})
TEXTS = frozenset({"message", "traceback", "detail", "subject", "target", "why", "function"})
"""Columns that hold words of the user or of the system. What is in neither set names a thing of the model, a
dtype or a kind, and stays."""

PIECE = 50_000


def redact_rows(table: Table, rows: list[Row], redactor: Redactor) -> list[Row]:
    """The rows with their private columns rewritten."""
    if not redactor.enabled:
        return rows
    makers: dict[str, Callable[[str], str]] = {
        c.name: redactor.path if c.name in PATHS else redactor.text
        for c in table.columns
        if c.name in PATHS or c.name in TEXTS
    }
    for row in rows:
        for name, make in makers.items():
            if row[name] is not None:
                row[name] = make(row[name])
    return rows


def pieces(trace: TraceView, name: str, condition: str = "true", columns: str = "*") -> Iterator[list[Row]]:
    """The rows of table `name` that meet `condition`, by rank, process and step, some PIECE rows at a time."""
    for low, high in _windows(trace, name, condition):
        window = f"step BETWEEN {low} AND {high}" if low is not None else "step IS NULL"
        order = ", ".join(f'"{c}"' for c in dict.fromkeys(("rank", "proc", *TABLES[name].sort)))
        yield fetch(
            trace,
            f"SELECT {columns} FROM (SELECT * FROM {name} WHERE ({condition}) AND {window} ORDER BY {order})",
        )


def _windows(trace: TraceView, name: str, condition: str) -> list[tuple[int | None, int | None]]:
    span = first(
        trace,
        f"SELECT min(step) AS low, max(step) AS high, count(*) AS n, count(*) FILTER (step IS NULL) AS blank "
        f"FROM {name} WHERE {condition}",
    )
    windows: list[tuple[int | None, int | None]] = []
    if span["low"] is not None:
        steps = span["high"] - span["low"] + 1
        width = max(1, steps * PIECE // max(1, span["n"]))
        starts = range(span["low"], span["high"] + 1, width)
        windows = [(start, min(start + width - 1, span["high"])) for start in starts]
    return windows + ([(None, None)] if span["blank"] else [])
