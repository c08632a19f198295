"""What the Run page lists."""

from __future__ import annotations

from ampscope.app.queries import runlog
from ampscope.app.queries.source import Source


def test_rows_per_table(src: Source, bare: Source) -> None:
    counts = runlog.row_counts(src)
    assert counts["steps"] == 40
    assert counts["ops"] == 90
    assert counts["kernels"] == 3
    assert set(runlog.row_counts(bare).values()) == {0}


def test_events_keep_their_text(src: Source) -> None:
    assert runlog.events(src)["message"].tolist() == ["Recording <b>started</b> & well."]


def test_parameters_by_dtype(src: Source) -> None:
    row = runlog.parameters(src).iloc[0]
    assert (row["dtype"], row["parameters"], row["trainable"]) == ("float32", 28, 28)


def test_processes(src: Source, bare: Source) -> None:
    assert runlog.processes(src) == [(0, 0)]
    assert runlog.processes(bare) == []
