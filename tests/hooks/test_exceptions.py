from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from ampscope.trace.reader import open_trace
from tests.support.recording import amp_training, record, rows


def test_hooks_are_chained_and_put_back(tmp_path: Path) -> None:
    before = sys.excepthook, threading.excepthook
    record(tmp_path, lambda: amp_training(1))
    assert (sys.excepthook, threading.excepthook) == before


def test_an_exception_in_a_thread_is_recorded_and_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: seen.append(args.exc_type))

    def fail() -> None:
        raise LookupError("in a thread")

    def train() -> None:
        amp_training(1)
        thread = threading.Thread(target=fail)
        thread.start()
        thread.join()

    trace = record(tmp_path, train)
    assert seen == [LookupError]
    event = rows(trace, "SELECT subject, message, function FROM events WHERE event='exception'")
    assert event == [{"subject": "LookupError", "message": "in a thread", "function": "fail"}]


def test_the_exception_that_ends_a_recorded_block(tmp_path: Path) -> None:
    def train() -> None:
        amp_training(2)
        raise RuntimeError("out of patience")

    with pytest.raises(RuntimeError, match="patience"):
        record(tmp_path, train)
    trace = open_trace(tmp_path / "run")
    assert trace.info.exit_status == 1
    event = rows(trace, "SELECT subject, message FROM events WHERE event='exception'")
    assert event == [{"subject": "RuntimeError", "message": "out of patience"}]
    assert trace.rows("steps") == 2
