"""A run as one CSV file per table. Empty means not measured; NaN and inf are written as such; lists as JSON."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from ampscope.report.query import TraceView, first
from ampscope.report.rows import pieces
from ampscope.trace.schema import TABLES


def write(trace: TraceView, folder: Path) -> dict[str, int]:
    """Write `<table>.csv` for every table that has rows into `folder`; returns the rows of each.

    Raises OSError when the folder cannot be made or written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written: dict[str, int] = {}
    for name, table in TABLES.items():
        total = int(first(trace, f"SELECT count(*) AS n FROM {name}")["n"])
        if not total:
            continue
        columns = ["rank", *table.column_names]
        with open(folder / f"{name}.csv", "w", newline="", encoding="utf-8", errors="replace") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(columns)
            for rows in pieces(trace, name):
                writer.writerows([_cell(row[column]) for column in columns] for row in rows)
        written[name] = total
    return written


def _cell(value: object) -> object:
    if isinstance(value, list):
        return json.dumps(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return value
