"""Files that the Run page offers: the diagnosis as JSON, tables as CSV. Computed on request, never stored."""

from __future__ import annotations

import json
from dataclasses import dataclass

from ampscope.app.runs import Context
from ampscope.errors import AmpscopeError
from ampscope.trace.schema import TABLES

ROWS = 500_000
"""Most rows of one CSV file."""


@dataclass(frozen=True)
class File:
    """One download. `table` is empty for the diagnosis."""

    name: str
    about: str
    table: str = ""
    mime: str = "text/csv; charset=utf-8"


FILES = (
    File("diagnosis.json", "findings, evidence and coverage", mime="application/json"),
    File("steps.csv", "one row per step or skip", "steps"),
    File("scaler.csv", "the GradScaler, step by step", "scaler"),
    File("updates.csv", "updates of each parameter", "updates"),
    File("nonfinite.csv", "what was NaN or inf, and where", "nonfinite"),
    File("calls.csv", "AMP calls with their lines", "calls"),
    File("ledger.csv", "ampscope's own cost", "ledger"),
)


def content(context: Context, name: str) -> tuple[bytes, str]:
    """(bytes, media type) of one of `FILES`. Raises AmpscopeError for another name."""
    found = next((f for f in FILES if f.name == name), None)
    if found is None:
        raise AmpscopeError(f"There is no download {name}.")
    if not found.table:
        text = json.dumps(context.run.diagnosis().to_json(), indent=2, ensure_ascii=False)
        return text.encode(), found.mime
    table = TABLES[found.table]
    columns = ", ".join(f'"{c.name}"' for c in table.columns if not c.type.startswith("list<int"))
    order = ", ".join(f'"{c}"' for c in table.sort)
    rows = context.src.frame(f"SELECT {columns} FROM {{{table.name}}} ORDER BY {order} LIMIT {ROWS}")
    return rows.to_csv(index=False).encode("utf-8", "replace"), found.mime
