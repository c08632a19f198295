from __future__ import annotations

import math
from pathlib import Path

import pytest

from ampscope.report import collect_steps
from ampscope.report.model import Skip
from ampscope.report.query import main_stream
from ampscope.trace.reader import Trace, open_trace
from ampscope.trace.records import RunInfo
from ampscope.trace.runinfo import write_run
from ampscope.trace.writer import TraceWriter
from tests.report.handmade import SKIPPED, STEPS, scale_at

Rows = list[dict[str, object]]


def record(run: Path, rows: Rows) -> Trace:
    write_run(run, RunInfo())
    writer = TraceWriter(run, strict=True)
    writer.add("steps", rows)
    assert writer.close()
    return open_trace(run)


def test_a_short_run_keeps_every_step(trace: Trace) -> None:
    line = collect_steps.timeline(trace, main_stream(trace))
    assert line.exact
    assert line.source == ""
    assert [b.first for b in line.buckets] == list(range(STEPS))
    assert [b.scale for b in line.buckets] == [scale_at(step) for step in range(STEPS)]
    assert [b.first for b in line.buckets if b.skipped] == list(SKIPPED)
    assert [b.first for b in line.buckets if b.bad_loss] == [1]
    assert line.buckets[1].loss is None


def test_a_long_run_keeps_every_extreme_and_every_skip(tmp_path: Path) -> None:
    rows: Rows = [
        {
            "step": i,
            "segment": i,
            "proc": 0,
            "opt": "SGD#0",
            "scale": 2.0**-3 if i == 5003 else 2.0**20 if i == 7001 else 1024.0,
            "loss": math.inf if i == 9000 else 1.0,
            "skipped": i in (17, 5003),
        }
        for i in range(10_000)
    ]
    with record(tmp_path, rows) as opened:
        line = collect_steps.timeline(opened, main_stream(opened))
    assert len(line.buckets) == collect_steps.POINTS
    assert not line.exact
    assert line.source == "one point for 25 steps"
    assert min(b.scale_low or 0 for b in line.buckets) == 2.0**-3
    assert max(b.scale_high or 0 for b in line.buckets) == 2.0**20
    assert sum(b.skipped for b in line.buckets) == 2
    assert sum(b.bad_loss for b in line.buckets) == 1
    assert line.buckets[-1].last == 9_999


def test_of_several_optimizers_the_busiest_is_shown(tmp_path: Path) -> None:
    rows: Rows = [
        {"step": i, "segment": 3 * i + k, "proc": 0, "opt": opt, "scale": scale, "skipped": k == 2}
        for i in range(4)
        for k, (opt, scale) in enumerate((("Adam#0", 8.0), ("Adam#1", 2.0), ("Adam#0", 8.0)))
    ]
    with record(tmp_path, rows) as opened:
        stream = main_stream(opened)
        line = collect_steps.timeline(opened, stream)
        skips, total = collect_steps.skips(opened, stream)
    assert line.source == "optimizer Adam#0 of 2"
    assert {b.scale for b in line.buckets} == {8.0}
    assert total == 4
    assert [s.opt for s in skips] == ["Adam#0"] * 4


def test_skips_name_the_tensor_nearest_the_loss(trace: Trace) -> None:
    skips, total = collect_steps.skips(trace, main_stream(trace))
    assert total == len(SKIPPED)
    assert skips[-1] == Skip(60, scale_at(60), scale_at(61), "head.weight", 5, 2, "AdamW#0")


@pytest.mark.parametrize("rows", [[], [{"step": None, "segment": 0, "proc": 0}]])
def test_a_run_without_steps(tmp_path: Path, rows: Rows) -> None:
    with record(tmp_path, rows) as opened:
        assert collect_steps.timeline(opened, main_stream(opened)).buckets == ()
        assert collect_steps.skips(opened, main_stream(opened)) == ((), 0)
