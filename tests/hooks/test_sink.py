from __future__ import annotations

import hashlib
import os
import runpy
import threading
import time
from pathlib import Path

import pytest

from ampscope.hooks.settings import Settings
from ampscope.hooks.sink import BUFFER_ROWS, Sink
from ampscope.trace.reader import open_trace
from ampscope.trace.runinfo import claim_process, create_run, finish_run


def test_rows_wait_until_the_process_trains(tmp_path: Path) -> None:
    run = tmp_path / "run"
    create_run(run, ["train.py"], {})
    sink = Sink(Settings(str(run)))
    sink.push([("steps", {"step": 0})])
    assert not (run / "processes").exists()
    sink.activate()
    sink.push([("steps", {"step": 1})])
    sink.close()
    finish_run(run, 0)
    assert open_trace(run).sql("SELECT step, proc FROM steps ORDER BY step").to_dict("list") == {
        "step": [0, 1],
        "proc": [0, 0],
    }


def test_threads_that_train_at_once_share_one_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slowly(*args: object) -> int:
        claimed.append(threading.get_ident())
        sink.push([("steps", {"step": 1})])
        time.sleep(0.2)
        return claim_process(*args)  # type: ignore[arg-type]

    run = tmp_path / "run"
    create_run(run, ["train.py"], {})
    claimed: list[int] = []
    monkeypatch.setattr("ampscope.hooks.sink.claim_process", slowly)
    sink = Sink(Settings(str(run)))
    threads = [threading.Thread(target=sink.activate) for _ in range(4)]
    for thread in threads:
        thread.start()
    while not claimed:
        time.sleep(0.01)
    sink.push([("steps", {"step": 2})])
    for thread in threads:
        thread.join()
    sink.close()
    finish_run(run, 0)
    assert len(claimed) == 1
    with open_trace(run) as trace:
        assert len(trace.info.processes) == 1
        assert sorted(trace.sql("SELECT step FROM steps")["step"]) == [1, 2]


def test_what_waits_is_bounded() -> None:
    sink = Sink(Settings("nowhere"))
    sink.push([("steps", {"step": i}) for i in range(BUFFER_ROWS + 5)])
    assert len(sink._early) == BUFFER_ROWS
    assert sink._early[0][1]["step"] == 5
    sink.close()


def test_the_rank_comes_from_the_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "2")
    run = tmp_path / "run"
    create_run(run, ["train.py"], {})
    sink = Sink(Settings(str(run)))
    sink.activate()
    sink.push([("steps", {"step": 0})])
    sink.close()
    finish_run(run, 0)
    assert open_trace(run).sql("SELECT rank FROM steps")["rank"].tolist() == [2]


def test_the_user_files_are_told_by_their_hash(tmp_path: Path) -> None:
    run = tmp_path / "run"
    create_run(run, ["train.py"], {})
    sink = Sink(Settings(str(run)))
    sink.activate()
    script = tmp_path / "loop.py"
    script.write_text("from ampscope.hooks.source import user_place\nplace = user_place()\n")
    os.utime(script, (0, 0))
    runpy.run_path(str(script))
    sink.close()
    finish_run(run, 0)
    (process,) = open_trace(run).info.processes
    assert process.sources[str(script)] == hashlib.sha256(script.read_bytes()).hexdigest()
