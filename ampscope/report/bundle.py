"""The report as a zip for a ticket: Markdown, HTML, JSON, and a redacted trace of the rows that the evidence needs.

The trace inside opens with `ampscope view` and `ampscope diagnose`, and each evidence query is tried on it.
"""

from __future__ import annotations

import io
import math
import tempfile
import zipfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd

from ampscope.diagnose.finding import Evidence
from ampscope.errors import AmpscopeError
from ampscope.report import html, json, markdown
from ampscope.report.exhibits import tables_read
from ampscope.report.model import Report
from ampscope.report.query import TraceView, first
from ampscope.report.redact import Redactor
from ampscope.report.redacted import privacy
from ampscope.report.rows import pieces, redact_rows
from ampscope.report.text import clean
from ampscope.trace.encode import Misfits, arrow_table, part_bytes
from ampscope.trace.files import write_json
from ampscope.trace.liveness import Identity
from ampscope.trace.parts import part_dir, part_name
from ampscope.trace.reader import open_trace
from ampscope.trace.records import RunInfo
from ampscope.trace.runinfo import COMPLETE_FILE, PROCESS_DIR, RUN_FILE
from ampscope.trace.schema import TABLES

ALWAYS = ("steps", "scaler", "calls", "nonfinite", "events", "ledger", "params")
"""Tables that every bundle holds: they draw its first page."""

SMALL = 50_000
"""Rows up to which a table goes in although no evidence reads it."""

LARGE = 400_000
"""Rows beyond which only steps near the findings, and some evenly chosen ones, go in."""

NEAR = 3
TRACE = "trace"
_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Reproduced:
    """One evidence query on the bundled rows: does it give what it gave on the whole trace?"""

    code: str
    metric: str
    same: bool


def write(report: Report, trace: TraceView, redactor: Redactor) -> bytes:
    """The zip as bytes; equal input gives equal bytes. `report` is already redacted by `redactor`."""
    with tempfile.TemporaryDirectory(prefix="ampscope-") as folder:
        run = Path(folder) / TRACE
        left_out = _write_trace(report, trace, redactor, run)
        checked = _reproduce(report, run)
        if redactor.enabled:
            report = replace(report, privacy=privacy(redactor))
        files = {
            "report.md": markdown.render(report).encode(),
            "report.html": html.render(report).encode(),
            "report.json": json.render(report).encode(),
            "README.txt": _readme(checked, left_out).encode(),
        }
        for path in sorted(p for p in run.rglob("*") if p.is_file()):
            files[path.relative_to(folder).as_posix()] = path.read_bytes()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type = zipfile.ZIP_STORED if name.endswith(".parquet") else zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data)
    return buffer.getvalue()


def _write_trace(report: Report, trace: TraceView, redactor: Redactor, run: Path) -> list[str]:
    """Write the redacted run into `run`; returns a sentence for every table that is not there in full."""
    needed = frozenset(ALWAYS).union(*(tables_read(f.finding) for f in report.findings))
    run.mkdir(parents=True)
    _write_records(trace.info, redactor, run)
    left_out = []
    for name in TABLES:
        total = int(first(trace, f"SELECT count(*) AS n FROM {name}")["n"])
        if total > SMALL and name not in needed:
            left_out.append(f"{name}: none of its {total} rows; no evidence reads it")
            continue
        condition = "true" if total <= LARGE else _near(report, total)
        written = _write_table(trace, name, condition, redactor, run)
        if written < total:
            left_out.append(f"{name}: {written} of {total} rows, those near the findings and some in between")
    return left_out


def _near(report: Report, total: int) -> str:
    spans = [f.finding.where.steps for f in report.findings if f.finding.where.steps]
    near = [f"step BETWEEN {s[0] - NEAR} AND {min(s[1], s[0] + 40) + NEAR}" for s in spans[:20]]
    return " OR ".join([*near, f"step % {-(-2 * total // LARGE)} = 0"])


def _write_table(trace: TraceView, name: str, condition: str, redactor: Redactor, run: Path) -> int:
    numbers: dict[tuple[int, int], int] = {}
    written = 0
    for rows in pieces(trace, name, condition):
        redact_rows(TABLES[name], rows, redactor)
        for rank, proc in sorted({(r["rank"], r["proc"] or 0) for r in rows}):
            own = [r for r in rows if (r["rank"], r["proc"] or 0) == (rank, proc)]
            folder = part_dir(run, name, rank)
            folder.mkdir(parents=True, exist_ok=True)
            number = numbers.get((rank, proc), 0)
            data = part_bytes(arrow_table(TABLES[name], own, Misfits({}, {})))
            (folder / part_name(proc, number)).write_bytes(data)
            numbers[rank, proc] = number + 1
            written += len(own)
    return written


def _write_records(info: RunInfo, redactor: Redactor, run: Path) -> None:
    clean = replace(
        info,
        command=redactor.argv(info.command),
        cwd=redactor.path(info.cwd),
        python=redactor.path(info.python),
        supervisor=Identity(),
        settings={k: v for k, v in info.settings.items() if k != "run_dir"},
    )
    raw = asdict(clean)
    del raw["processes"], raw["state"]
    write_json(run / RUN_FILE, raw)
    (run / PROCESS_DIR).mkdir()
    for process in info.processes:
        shown = replace(
            process,
            pid=0,
            identity=Identity(),
            script=redactor.path(process.script),
            python=redactor.path(process.python),
            platform=redactor.text(process.platform),
            parts={},
            sources={},
        )
        write_json(run / PROCESS_DIR / f"rank={process.rank}-proc={process.proc}.json", asdict(shown))
    if info.state == "complete":
        (run / COMPLETE_FILE).touch()


def _reproduce(report: Report, run: Path) -> list[Reproduced]:
    """Try each evidence query on the bundled rows: its first cell is the number that the evidence gives."""
    with open_trace(run) as bundled:
        return [
            Reproduced(found.finding.code, evidence.metric, _same(bundled, evidence))
            for found in report.findings
            for evidence in found.finding.evidence
            if evidence.query.strip()
        ]


def _same(bundled: TraceView, evidence: Evidence) -> bool:
    try:
        frame = bundled.sql(evidence.query)
    except (AmpscopeError, duckdb.Error):
        return False
    if frame.empty:
        return evidence.value is None
    found: Any = frame.iat[0, 0]
    known = evidence.value
    if isinstance(known, float | int) and not isinstance(known, bool):
        return bool(pd.notna(found)) and math.isclose(float(found), known, rel_tol=1e-9, abs_tol=0.0)
    return str(found) == str(known)


def _readme(checked: list[Reproduced], left_out: list[str]) -> str:
    same = sum(c.same for c in checked)
    lines = [
        "ampscope report",
        "",
        "report.md     for the body of an issue",
        "report.html   the same with charts; one file, opens offline",
        "report.json   the same for programs",
        "trace/        the recorded rows behind the evidence, as Parquet:",
        "              unpack, then `ampscope view trace` or `ampscope diagnose trace`",
        "",
        f"{same} of {len(checked)} evidence queries give the same number on these rows."
        if checked
        else "There is no finding, and so no evidence to try on these rows.",
        *(f"  differs: {c.code} {clean(c.metric)}" for c in checked if not c.same),
        *(["", "Not in trace/ in full:", *(f"  {line}" for line in left_out)] if left_out else []),
    ]
    return "\n".join(lines) + "\n"
