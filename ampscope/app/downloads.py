"""Files that the pages offer: the report, the diagnosis as JSON, tables as CSV. Computed on request, never stored."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from dash import html

from ampscope.app.runs import Context
from ampscope.errors import AmpscopeError
from ampscope.trace.schema import TABLES

ROWS = 500_000
"""Most rows of one CSV file."""


@dataclass(frozen=True)
class File:
    """One download: a table, or a report in one of the formats of `ampscope.report.write`; else the diagnosis."""

    name: str
    about: str
    table: str = ""
    report: str = ""
    mime: str = "text/csv; charset=utf-8"


REPORTS = (
    File("report.md", "for the body of an issue", report="md", mime="text/markdown; charset=utf-8"),
    File("report.html", "one page that needs no network", report="html", mime="text/html; charset=utf-8"),
)
"""Redacted as `ampscope report` does."""

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
    """(bytes, media type) of one of `REPORTS` or `FILES`. Raises AmpscopeError for another name."""
    found = next((f for f in (*REPORTS, *FILES) if f.name == name), None)
    if found is None:
        raise AmpscopeError(f"There is no download {name}.")
    if found.report:
        return _report(context, found.report), found.mime
    if not found.table:
        text = json.dumps(context.run.diagnosis().to_json(), indent=2, ensure_ascii=False)
        return text.encode(), found.mime
    table = TABLES[found.table]
    columns = ", ".join(f'"{c.name}"' for c in table.columns if not c.type.startswith("list<int"))
    order = ", ".join(f'"{c}"' for c in table.sort)
    rows = context.src.frame(f"SELECT {columns} FROM {{{table.name}}} ORDER BY {order} LIMIT {ROWS}")
    return rows.to_csv(index=False).encode("utf-8", "replace"), found.mime


def _report(context: Context, format: str) -> bytes:
    """The report is of the whole run, whichever process is shown."""
    from ampscope.report.write import make, to_bytes

    trace = context.run.trace
    return to_bytes(make(trace, context.run.diagnosis()), trace, format)


def link(context: Context, file: File) -> Any:
    """A link that downloads `file`."""
    run, process = quote(context.run.name, safe=""), f"{context.src.rank}.{context.src.proc}"
    return html.A(file.name, href=f"/download/{file.name}?run={run}&process={process}", download=file.name)
