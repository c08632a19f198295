"""The opened runs: names, live refresh, one diagnosis per state, processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from ampscope.app import callbacks
from ampscope.app.runs import RunStore
from ampscope.app.state import View
from ampscope.errors import AmpscopeError
from ampscope.trace.runinfo import claim_process, create_run, finish_process, finish_run
from ampscope.trace.writer import TraceWriter
from tests.app.tracekit import RunKit, process_info


def test_names_are_as_short_as_they_can_be(tmp_path: Path) -> None:
    paths = [
        tmp_path / "a" / "run",
        tmp_path / "b" / "run",
        tmp_path / "b" / "other",
        tmp_path / "b" / "other",
    ]
    assert RunStore(paths).names == ["a/run", "b/run", "other"]


def test_an_unknown_run_is_one_sentence(store: RunStore) -> None:
    with pytest.raises(AmpscopeError, match="no run 'x'"):
        store.get("x")
    assert store.name_of(View.parse("/", "run=second")) == "second"
    assert store.name_of(View.parse("/", "run=x")) == "first"


def test_a_run_that_vanished_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(AmpscopeError, match="does not exist"):
        RunStore([tmp_path / "gone"]).get("gone")


def test_a_live_run_grows_and_ends(tmp_path: Path) -> None:
    path = tmp_path / "live"
    create_run(path, ["train.py"], {})
    proc = claim_process(path, 0, process_info())
    writer = TraceWriter(path)
    kit = RunKit()
    writer.add("steps", [{**kit.key(0), "loss": 1.0, "level": "pulse"}])
    assert writer.flush()
    run = RunStore([path]).get("live")
    src = run.source(View())
    assert run.live
    assert src.value("SELECT count(*) FROM {steps}") == 1
    before = run.diagnosis()
    run.refresh()
    assert run.version == 0
    assert run.judge.known is before
    writer.add("steps", [{**kit.key(1), "loss": 0.5, "level": "pulse"}])
    assert writer.flush()
    run.refresh()
    assert run.version == 1
    assert src.value("SELECT count(*) FROM {steps}") == 2
    assert run.judge.known is None
    writer.close()
    finish_process(path, 0, proc, writer.parts)
    finish_run(path, 0)
    run.refresh()
    assert not run.live
    assert run.version == 2
    run.trace.close()


def test_a_run_of_two_ranks_offers_both(tmp_path: Path) -> None:
    path = tmp_path / "ranks"
    create_run(path, ["torchrun", "train.py"], {})
    for rank in (0, 1):
        claim_process(path, rank, process_info())
        writer = TraceWriter(path, rank=rank)
        writer.add("steps", [{**RunKit().key(0), "loss": float(rank), "level": "pulse"}])
        writer.close()
    finish_run(path, 0)
    run = RunStore([path]).get("ranks")
    assert run.processes() == [(0, 0), (1, 0)]
    second = run.source(View.parse("/", "process=1.0"))
    assert (second.rank, second.value("SELECT loss FROM {steps}")) == (1, 1.0)
    assert run.source(View.parse("/", "process=9.9")).rank == 0
    run.trace.close()


def test_a_run_without_steps_has_one_process(store: RunStore) -> None:
    assert store.get("bare").processes() == [(0, 0)]


def test_warming_up_fills_the_cache_and_never_raises(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    RunStore([run_dir]).warm()
    assert capsys.readouterr().err == ""
    RunStore([tmp_path / "gone"]).warm()
    assert "could not prepare" in capsys.readouterr().err


def test_first_plots_after_warming_up_read_no_tensors(run_dir: Path) -> None:
    store = RunStore([run_dir])
    store.warm()
    run = store.get(store.names[0])
    asked: list[str] = []
    read = run.trace.sql

    def spy(query: str, params: object = None) -> object:
        asked.append(query)
        return read(query, params)  # type: ignore[arg-type]

    run.trace.sql = spy  # type: ignore[method-assign, assignment]
    parts = "/flushed scale/course scale/replay gradients/heat gradients/window activations/heat".split()
    for part in parts:
        callbacks.fill_part(store, View.parse("/" + part.split("/")[0], ""), part)
    assert [q for q in asked if " tensors " in q] == []
