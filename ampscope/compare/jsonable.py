"""Comparisons as JSON. Non-finite numbers are the strings "nan", "inf" and "-inf", which JSON has no numbers for."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from ampscope.compare.precisions import Table
from ampscope.compare.runs import Comparison
from ampscope.diagnose.diagnosis import finding_to_json

SCHEMA = 1


def precisions_json(table: Table) -> dict[str, Any]:
    """One object per precision, numbers in seconds and bytes."""
    rows = []
    for row in table.rows:
        fields = asdict(row)
        numbers = fields.pop("headline") or {}
        rows.append({**fields, **numbers, "speed": table.speed(row)})
    whole = {"schema": SCHEMA, "command": table.command, "rows": rows, "notes": table.notes}
    return {key: _plain(value) for key, value in whole.items()}


def runs_json(found: Comparison) -> dict[str, Any]:
    """Two runs: headlines, settings that differ, losses, tensors, findings."""
    return {
        key: _plain(value)
        for key, value in {
            "schema": SCHEMA,
            "runs": [
                {"path": name, "verdict": verdict, **asdict(numbers)}
                for name, verdict, numbers in zip(found.names, found.verdicts, found.headlines, strict=True)
            ],
            "settings": [asdict(s) for s in found.settings],
            "losses": {
                "steps": found.curves.steps,
                "one": found.curves.one,
                "two": found.curves.two,
                "distance": found.curves.distance,
                "first_apart": found.apart,
            },
            "tensors": asdict(found.joined),
            "only_in_first": [finding_to_json(f) for f in found.only_one],
            "only_in_second": [finding_to_json(f) for f in found.only_two],
        }.items()
    }


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
