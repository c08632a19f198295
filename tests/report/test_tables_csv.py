from __future__ import annotations

import csv
import json
import math
from pathlib import Path

from ampscope.report import tables_csv
from ampscope.report.query import fetch
from ampscope.trace.reader import Trace
from ampscope.trace.schema import TABLES


def test_every_row_and_column_comes_back(trace: Trace, tmp_path: Path) -> None:
    written = tables_csv.write(trace, tmp_path / "a" / "b")
    assert set(written) == {
        "steps",
        "tensors",
        "updates",
        "ops",
        "calls",
        "nonfinite",
        "scaler",
        "ledger",
        "events",
    }
    for name, count in written.items():
        with open(tmp_path / "a" / "b" / f"{name}.csv", newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == count == len(fetch(trace, f"SELECT * FROM {name}"))
        assert list(rows[0]) == ["rank", *TABLES[name].column_names]


def test_null_nan_and_lists_are_told_apart(trace: Trace, tmp_path: Path) -> None:
    tables_csv.write(trace, tmp_path)
    with open(tmp_path / "steps.csv", newline="", encoding="utf-8") as file:
        steps = list(csv.DictReader(file))
    assert math.isnan(float(steps[1]["loss"]))
    assert steps[1]["root_sum"] == ""
    assert steps[0]["skipped"] == "true"
    assert float(steps[3]["loss"]) == 3.0 * math.exp(-3 / 40) + 3e-8
    with open(tmp_path / "tensors.csv", newline="", encoding="utf-8") as file:
        tensors = [r for r in csv.DictReader(file) if r["role"] == "grad"]
    assert len(json.loads(tensors[0]["hist"])) == 20
