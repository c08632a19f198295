from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from ampscope.errors import AmpscopeError
from ampscope.launch.supervise import Ended
from ampscope.rerun.child import run_child


def run(code: str, tmp_path: Path, enough: bool = False) -> tuple[Ended, bool, str]:
    log = tmp_path / "log"
    ended, stopped = run_child([sys.executable, "-c", code], tmp_path, os.environ, log, lambda: enough)
    return ended, stopped, log.read_text()


def test_output_goes_to_the_log_and_the_status_is_told(tmp_path: Path) -> None:
    code = "import sys, os; print('out'); print('err', file=sys.stderr); print(os.getcwd()); sys.exit(3)"
    ended, stopped, log = run(code, tmp_path)
    assert (ended, stopped) == (Ended(3, None), False)
    assert set(log.splitlines()) == {"out", "err", str(tmp_path)}


def test_a_signal_is_told(tmp_path: Path) -> None:
    ended, stopped, _ = run("import os; os.kill(os.getpid(), 9)", tmp_path)
    assert (ended, stopped) == (Ended(None, 9), False)


def test_it_is_ended_when_there_is_enough_with_what_it_started(tmp_path: Path) -> None:
    code = """
import pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
pathlib.Path("pid").write_text(str(child.pid))
time.sleep(60)
"""
    log, pid = tmp_path / "log", tmp_path / "pid"
    argv = [sys.executable, "-c", code]
    ended, stopped = run_child(
        argv, tmp_path, os.environ, log, lambda: pid.exists() and bool(pid.read_text())
    )
    assert (ended, stopped) == (Ended(None, int(signal.SIGTERM)), True)
    deadline = time.monotonic() + 10
    while _alive(int(pid.read_text())):
        assert time.monotonic() < deadline, "the grandchild lives on"
        time.sleep(0.02)


def test_an_interrupt_ends_it_too(tmp_path: Path) -> None:
    log = tmp_path / "log"
    argv = [sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(60)"]

    def interrupted() -> bool:
        if log.read_text():
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        run_child(argv, tmp_path, os.environ, log, interrupted)
    assert not _alive(int(log.read_text()))


def test_what_cannot_be_started(tmp_path: Path) -> None:
    with pytest.raises(AmpscopeError, match="no-such-python could not be started"):
        run_child(["no-such-python"], tmp_path, os.environ, tmp_path / "log", lambda: False)


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except FileNotFoundError:
        return False
