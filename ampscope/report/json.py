"""The report for programs: the JSON of `ampscope diagnose --json`, and beside it what a report adds."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

from ampscope.diagnose.diagnosis import finding_to_json
from ampscope.report.model import Report, Table


def render(report: Report) -> str:
    """`report` as indented JSON; non-finite numbers are the strings "nan", "inf" and "-inf"."""
    return json.dumps(to_json(report), indent=1, ensure_ascii=True, allow_nan=False) + "\n"


def to_json(report: Report) -> dict[str, Any]:
    """JSON-ready: the keys of a diagnosis, and the context of the report under keys of their own."""
    return {
        "report_schema": report.schema,
        "generator": report.generator,
        "schema": 1,
        "run": {**_plain(report.run), "command": list(report.run.command), "symptoms": list(report.symptoms)},
        "verdict": report.verdict,
        "findings": [
            {
                **finding_to_json(f.finding),
                "verification": f.verification or None,
                "exhibit": _plain(f.exhibit),
            }
            for f in report.findings
        ],
        "coverage": _coverage(report),
        "facts": _plain(report.facts),
        "timeline": _plain(report.timeline),
        "skips": {"total": report.skipped_total, "shown": _plain(report.skips)},
        "gradients": {
            "over_steps": _plain(report.gradients_over_steps),
            "by_tensor": _plain(report.gradients_by_tensor),
        },
        "tables": _plain(report.tables),
        "integrity": list(report.integrity),
        "overhead": {**_plain(report.overhead), "share": _plain(report.overhead.share)},
        "events": _plain(report.events),
        "crash": report.crash or None,
        "privacy": _plain(report.privacy),
    }


def _coverage(report: Report) -> dict[str, Any]:
    found = report.coverage
    return {
        "fired": list(found.fired),
        "clean": list(found.clean),
        "not_measurable": [{"code": code, "why": why} for code, why in found.not_measurable],
        "silenced": [{"code": code, "reason": reason} for code, reason in found.silenced],
        "names": dict(found.names),
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Table):
        columns = [{"name": c.name, "kind": c.kind} for c in value.columns]
        rows = [[_plain(cell) for cell in row] for row in value.rows]
        return {
            "title": value.title,
            "note": value.note,
            "columns": columns,
            "rows": rows,
            "total": value.total,
        }
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
