from __future__ import annotations

from pathlib import Path

import pytest

from ampscope.report import rows
from ampscope.report.query import fetch
from ampscope.trace.reader import Trace, open_trace
from ampscope.trace.records import RunInfo
from ampscope.trace.runinfo import write_run
from ampscope.trace.schema import TABLES
from ampscope.trace.writer import TraceWriter
from tests.report.handmade import SECRET, TRAIN, redactor


def test_private_columns_are_columns_of_the_schema() -> None:
    known = {c.name: c.type for table in TABLES.values() for c in table.columns}
    for name in rows.PATHS | rows.TEXTS:
        assert known[name] in ("string", "dict")
    free = {c.name for table in TABLES.values() for c in table.columns if c.type == "string"}
    assert free <= rows.TEXTS


def test_private_columns_are_rewritten(trace: Trace) -> None:
    (before,) = fetch(trace, "SELECT * FROM events")
    (after,) = rows.redact_rows(TABLES["events"], fetch(trace, "SELECT * FROM events"), redactor())
    assert before["file"] == TRAIN
    assert after["file"] == "train.py"
    assert SECRET not in str(after)
    assert "alice" not in str(after)
    same = {name: value for name, value in after.items() if name not in rows.PATHS | rows.TEXTS}
    assert same == {name: before[name] for name in same}


def test_pieces_hold_every_row_once_and_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "PIECE", 10)
    write_run(tmp_path, RunInfo())
    for rank in (1, 0):
        writer = TraceWriter(tmp_path, rank=rank)
        writer.add("steps", [{"step": 3 * (i // 2), "segment": i, "proc": 0} for i in range(60)])
        writer.add("steps", [{"step": None, "segment": 99, "proc": 0}])
        assert writer.close()
    with open_trace(tmp_path) as opened:
        found = list(rows.pieces(opened, "steps"))
        assert list(rows.pieces(opened, "ops")) == []
    assert all(len(piece) <= 12 for piece in found)
    seen = [(row["rank"], row["segment"]) for piece in found for row in piece]
    assert len(seen) == len(set(seen)) == 122
    for piece in found:
        keys = [(row["rank"], row["segment"]) for row in piece]
        assert keys == sorted(keys)
