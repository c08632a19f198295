from __future__ import annotations

from pathlib import Path

import pytest

from ampscope.report import collect_tables
from ampscope.report.query import main_stream
from ampscope.trace.reader import Trace, open_trace
from ampscope.trace.records import RunInfo
from ampscope.trace.runinfo import write_run
from ampscope.trace.writer import TraceWriter


def test_tables_hold_the_numbers_of_the_trace(trace: Trace) -> None:
    updates, activations, precision, phases = collect_tables.tables(trace, main_stream(trace))
    first = updates.rows[0]
    assert first[:2] == ("head.weight", "bfloat16")
    assert first[2] == pytest.approx((930 + 925 + 920) / 3000, abs=2e-3)
    assert first[-1] == pytest.approx(1.5e-8)
    assert updates.rows[1][:-1] == ("embed.weight", "float32", None, 0.12, 0.32, 0.3)
    assert activations.rows[0][:2] == ("blocks.1.norm:out", "float16")
    assert activations.rows[0][4] == pytest.approx(2.13)
    assert precision.rows == (("aten::mm", "float16", "forward", 2, 2e9, 1.0),)
    assert {row[0]: row[1] for row in phases.rows}["backward"] == 0.004
    assert phases.rows[-1] == ("whole step", 0.01, 1.0)


def test_facts(trace: Trace) -> None:
    absorbed, low, time = collect_tables.facts(trace, main_stream(trace))
    assert (absorbed.label, absorbed.basis) == ("updates absorbed", "observed")
    assert absorbed.value == pytest.approx(0.925, abs=2e-3)
    assert (low.value, low.basis) == (1.0, "observed")
    assert time.value == 0.01


def test_updates_of_float32_weights_are_a_prediction(tmp_path: Path) -> None:
    write_run(tmp_path, RunInfo())
    writer = TraceWriter(tmp_path, strict=True)
    row = {
        "step": 0,
        "segment": 0,
        "proc": 0,
        "name": "w",
        "dtype": "float32",
        "moved": 10,
        "absorbed_bf16": 4,
    }
    writer.add("updates", [{**row, "unchanged": 9, "grad_nonzero": 10}])
    writer.add("steps", [{"step": 0, "segment": 0, "proc": 0}])
    assert writer.close()
    with open_trace(tmp_path) as opened:
        (fact,) = collect_tables.facts(opened, main_stream(opened))
    assert (fact.label, fact.value, fact.basis) == ("updates that bfloat16 would lose", 0.4, "predicted")


def test_an_empty_trace_has_none(tmp_path: Path) -> None:
    write_run(tmp_path, RunInfo())
    with open_trace(tmp_path) as opened:
        assert collect_tables.tables(opened, main_stream(opened)) == []
        assert collect_tables.facts(opened, main_stream(opened)) == []
