from __future__ import annotations

import math

import pytest

from ampscope.diagnose.finding import Evidence, Finding, Where
from ampscope.report.exhibits import LINES, exhibit, tables_read
from ampscope.report.query import Stream
from ampscope.trace.reader import Trace
from tests.report.handmade import FINDINGS, SKIPPED, TRAIN


def finding(where: Where, *queries: str) -> Finding:
    evidence = tuple(Evidence("m", 1, query=query) for query in queries)
    return Finding("AMP000", "x", "info", where, "claim", "do", evidence=evidence)


def test_tables_that_the_evidence_reads() -> None:
    found = finding(
        Where(), 'select 1 FROM tensors t join "steps" USING (step)', "SELECT a FROM (SELECT * FROM calls)"
    )
    assert tables_read(found) == {"tensors", "steps", "calls"}


def test_calls_around_the_line(trace: Trace) -> None:
    (calls,) = exhibit(trace, Stream(), FINDINGS[0]).tables
    assert calls.title == "Calls of step 0, in order"
    assert [row[0] for row in calls.rows] == ["backward", "clip_grad_norm_", "scaler.step", "scaler.update"]
    assert calls.rows[1][-1] == f"{TRAIN}:31"


def test_ops_around_the_first_that_went_bad(trace: Trace) -> None:
    shown = exhibit(trace, Stream(), FINDINGS[1])
    (ops,) = shown.tables
    assert [row[0] for row in ops.rows] == ["aten::mm", "aten::mul", "aten::sum"]
    assert ops.rows[-1][5:7] == (3, 9.1e4)


def test_history_of_a_module_and_of_a_tensor(trace: Trace) -> None:
    module = exhibit(trace, Stream(), finding(Where(module="blocks.1.norm"))).chart
    assert module is not None
    assert module.lines[0].name == "blocks.1.norm:out (activation)"
    assert module.marks[0][0] == 65504.0
    tensor = exhibit(trace, Stream(), finding(Where(tensor="head.weight"))).chart
    assert tensor is not None
    values = dict(zip(tensor.steps, tensor.lines[0].values, strict=True))
    assert values[5] == 384.0
    assert values[SKIPPED[0]] == math.inf


@pytest.mark.parametrize("where", [Where(), Where(tensor="head.weight"), Where(module="head")])
def test_updates_when_the_evidence_reads_them(trace: Trace, where: Where) -> None:
    chart = exhibit(trace, Stream(), finding(where, "SELECT sum(unchanged) FROM updates")).chart
    assert chart is not None
    assert chart.title == "share of absorbed updates"
    assert chart.lines[0].name == "head.weight" or where == Where()
    assert len(chart.lines) <= LINES
    assert 0.9 < max(v or 0 for line in chart.lines for v in line.values) < 0.94


@pytest.mark.parametrize(
    "where",
    [
        Where(),
        Where(file="other.py", line=3),
        Where(op="aten::none"),
        Where(module="none"),
        Where(tensor="it's%_"),
    ],
)
def test_a_place_of_which_nothing_is_recorded(trace: Trace, where: Where) -> None:
    shown = exhibit(trace, Stream(), finding(where))
    assert shown.chart is None
    assert shown.tables == ()
