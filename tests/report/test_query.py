from __future__ import annotations

import math
from pathlib import Path

from ampscope.report.query import Stream, fetch, finite, first, main_stream, quoted
from ampscope.trace.reader import Trace, open_trace
from ampscope.trace.records import RunInfo
from ampscope.trace.runinfo import write_run
from ampscope.trace.writer import TraceWriter


def test_null_and_nan_stay_apart(trace: Trace) -> None:
    rows = fetch(
        trace,
        "SELECT * FROM (VALUES (1, NULL::DOUBLE, [1, NULL]), (9007199254740993, 'nan'::DOUBLE, NULL)) v(i, x, l) "
        "ORDER BY i",
    )
    assert rows[0] == {"i": 1, "x": None, "l": [1, None]}
    assert rows[1]["i"] == 9007199254740993
    assert math.isnan(rows[1]["x"])
    assert first(trace, "SELECT 1 AS a WHERE false") == {}


def test_parameters(trace: Trace) -> None:
    assert first(trace, "SELECT $name AS n", {"name": "it's"}) == {"n": "it's"}
    assert first(trace, f"SELECT {quoted(chr(39))} AS n") == {"n": "'"}


def test_one_process_needs_no_name(trace: Trace) -> None:
    stream = main_stream(trace)
    assert stream == Stream(0, 0, 1, 1)
    assert stream.name == ""
    assert stream.where == "rank = 0 AND proc = 0"
    assert stream.of("s") == "s.rank = 0 AND s.proc = 0"


def test_the_busiest_process_of_the_lowest_rank_is_shown(tmp_path: Path) -> None:
    write_run(tmp_path, RunInfo())
    for rank, proc, count in ((1, 0, 9), (0, 0, 2), (0, 1, 5)):
        writer = TraceWriter(tmp_path, rank=rank, proc=proc)
        writer.add("steps", [{"step": i, "segment": i, "proc": proc} for i in range(count)])
        assert writer.close()
    with open_trace(tmp_path) as opened:
        stream = main_stream(opened)
    assert (stream.rank, stream.proc) == (0, 1)
    assert stream.name == "rank 0 of 2, process 1 of 2"


def test_finite() -> None:
    assert finite(1.0) == 1.0
    assert finite(math.inf) is None
    assert finite(None) is None
