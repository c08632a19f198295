"""The diagnosis in its own thread: made once per state of the run, never waited for longer than asked."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from ampscope.app import callbacks
from ampscope.app.judge import Judge
from ampscope.app.runs import RunStore
from ampscope.app.state import View
from tests.app import walk


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, list[object]]:
    """`diagnose` ends when the event is set; the list holds what it answered."""
    package = import_module("ampscope.diagnose")
    real: Callable[..., Any] = package.diagnose
    go = threading.Event()
    made: list[object] = []

    def diagnose(*args: Any) -> Any:
        assert go.wait(20)
        made.append(real(*args))
        return made[-1]

    monkeypatch.setattr(package, "diagnose", diagnose)
    return go, made


def test_it_is_made_once_and_waited_for(
    run_dir_store: RunStore, slow: tuple[threading.Event, list[object]]
) -> None:
    go, made = slow
    judge = Judge(run_dir_store.get("first").trace)
    assert judge.wait(0.01) is None
    assert judge.wait(0.01) is None
    assert (judge.known, judge.settled) == (None, False)
    go.set()
    assert judge.wait(20) is made[0]
    assert judge.wait() is made[0]
    judge.close()
    assert (len(made), judge.settled) == (1, True)


def test_a_run_that_grows_meanwhile_is_diagnosed_again(
    run_dir_store: RunStore, slow: tuple[threading.Event, list[object]]
) -> None:
    go, made = slow
    judge = Judge(run_dir_store.get("first").trace)
    judge.wait(0.01)
    judge.forget()
    go.set()
    end = time.monotonic() + 20
    while not judge.settled and time.monotonic() < end:
        time.sleep(0.01)
    assert len(made) == 2
    assert judge.known is made[1]
    assert judge.settled


def test_what_goes_wrong_is_raised_until_the_run_changes(
    run_dir_store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object) -> None:
        raise ZeroDivisionError("by nothing")

    judge = Judge(run_dir_store.get("first").trace)
    with monkeypatch.context() as patch:
        patch.setattr(import_module("ampscope.diagnose"), "diagnose", broken)
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                judge.wait(20)
    judge.forget()
    assert judge.wait(20) is not None
    judge.close()


def test_the_page_does_not_wait_for_it(run_dir: Path, slow: tuple[threading.Event, list[object]]) -> None:
    import dash

    go, _ = slow
    store = RunStore([run_dir])
    start = time.perf_counter()
    assert callbacks.attempt(store, View(), "/verdict") == (dash.no_update, False)
    content, settled = callbacks.attempt(store, View(), "/time")
    assert settled
    assert "Step time" in walk.text(content)
    store.get("first").refresh()
    assert time.perf_counter() - start < 10
    go.set()
    store.get("first").judge.wait(20)
    store.get("first").judge.close()
    content, settled = callbacks.attempt(store, View(), "/verdict")
    assert settled
    assert "Checked" in walk.text(content)
    store.close()


def test_a_part_that_cannot_be_judged_says_so(tmp_path: Path) -> None:
    content, settled = callbacks.attempt(RunStore([tmp_path / "gone"]), View(), "/verdict")
    assert settled
    assert "cannot be shown" in walk.text(content)


def test_it_gives_way_before_each_query(run_dir_store: RunStore) -> None:
    calls: list[None] = []
    judge = Judge(run_dir_store.get("first").trace, lambda: calls.append(None))
    found = judge.wait()
    judge.close()
    assert found is not None
    assert len(calls) > 20


def test_a_query_waits_while_a_request_is_served_but_not_for_ever(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RunStore([run_dir])
    start = time.perf_counter()
    store.give_way()
    assert time.perf_counter() - start < 0.02
    monkeypatch.setattr("ampscope.app.runs.GIVE_WAY_SECONDS", 0.2)
    with store.serving():
        start = time.perf_counter()
        store.give_way()
        assert time.perf_counter() - start >= 0.2


def test_what_a_project_silences_stays_silent(
    run_dir_store: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.ampscope]\nsilence = { AMP112 = "known" }\n')
    monkeypatch.chdir(tmp_path)
    judge = Judge(run_dir_store.get("first").trace)
    found = judge.wait()
    judge.close()
    assert found is not None
    assert [(s.code, s.reason) for s in found.coverage.silenced] == [("AMP112", "known")]


def test_closing_ends_a_diagnosis_that_is_under_way(run_dir: Path) -> None:
    store = RunStore([run_dir])
    asked, go = threading.Event(), threading.Event()

    def pause() -> None:
        asked.set()
        assert go.wait(20)

    run = store.get("first")
    run.judge = Judge(run.trace, pause)
    run.judge.wait(0.01)
    assert asked.wait(20)
    closing = threading.Thread(target=store.close)
    closing.start()
    go.set()
    closing.join(20)
    assert not closing.is_alive()
    assert run.judge.settled
