"""A report without private text: every string of the model goes through the redactor, by what it holds."""

from __future__ import annotations

import dataclasses
from typing import cast

from ampscope.diagnose.finding import Where
from ampscope.report.model import (
    HeatMap,
    Line,
    Privacy,
    Process,
    RemovedText,
    Report,
    Run,
    Skip,
    Table,
    Value,
)
from ampscope.report.redact import Redactor

_KEEP: frozenset[tuple[type, str]] = frozenset(
    {
        (Where, "module"),
        (Where, "tensor"),
        (Where, "op"),
        (Process, "versions"),
        (HeatMap, "labels"),
        (Line, "name"),
        (Skip, "culprit"),
        (Skip, "opt"),
    }
)
"""Fields that hold names of the model or versions."""

_PATHS: frozenset[tuple[type, str]] = frozenset({(Run, "script"), (Where, "file")})


def redacted(report: Report, redactor: Redactor) -> Report:
    """`report` after redaction, with the list of what was taken out. A disabled redactor changes nothing."""
    if not redactor.enabled:
        return report
    clean = cast(Report, _any(report, redactor))
    return dataclasses.replace(clean, privacy=privacy(redactor))


def privacy(redactor: Redactor) -> Privacy:
    """What the redactor took out up to now."""
    removed = tuple(RemovedText(r.kind, r.places, r.distinct) for r in redactor.removed)
    return Privacy(redacted=redactor.enabled, removed=removed)


def _any(value: object, redactor: Redactor) -> object:
    if isinstance(value, str):
        return redactor.text(value)
    if isinstance(value, tuple):
        return tuple(_any(item, redactor) for item in value)
    if isinstance(value, dict):
        return {key: _any(item, redactor) for key, item in value.items()}
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    changes = {f.name: _field(value, f.name, redactor) for f in dataclasses.fields(value) if f.init}
    return dataclasses.replace(value, **changes)


def _field(owner: object, name: str, redactor: Redactor) -> object:
    value, key = getattr(owner, name), (type(owner), name)
    if key in _KEEP:
        return value
    if key in _PATHS:
        return redactor.path(value) if value else value
    if isinstance(owner, Run) and name == "command":
        return redactor.argv(owner.command)
    if isinstance(owner, Table) and name == "rows":
        return tuple(_row(owner, row, redactor) for row in owner.rows)
    return _any(value, redactor)


def _row(table: Table, row: tuple[Value, ...], redactor: Redactor) -> tuple[Value, ...]:
    return tuple(
        value
        if not isinstance(value, str) or column.kind == "name"
        else redactor.path(value)
        if column.kind == "path"
        else redactor.text(value)
        for column, value in zip(table.columns, row, strict=True)
    )
