"""`ampscope view` as a process: it prints its address on stderr, serves, and Ctrl-C ends it with status 0."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ampscope.commands import main
from tests.app.tracekit import RunKit


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    kit = RunKit()
    kit.add("steps", **kit.key(0), loss=1.0, level="pulse")
    return kit.write(tmp_path_factory.mktemp("view") / "ampscope-runs" / "one")


@contextmanager
def viewing(*arguments: str, cwd: Path) -> Iterator[tuple[subprocess.Popen[str], list[str], str]]:
    """(process, lines on stderr up to the address, address)."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "ampscope", "view", *arguments, "--no-browser"]
    process = subprocess.Popen(
        command, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    lines: list[str] = []
    for line in process.stderr:
        lines.append(line)
        found = re.search(r"http://\S+", line)
        if found:
            break
    else:
        raise AssertionError("".join(lines))
    try:
        yield process, lines, found[0]
    finally:
        process.kill()
        process.communicate()


def test_it_serves_and_ends_cleanly(run_dir: Path) -> None:
    with viewing(str(run_dir), cwd=run_dir) as (process, lines, url):
        assert lines == [f"[ampscope] dashboard: {url}  (Ctrl-C ends it)\n"]
        assert url.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(url, timeout=10) as answer:
            assert "ampscope" in answer.read().decode()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
        assert (process.returncode, out, err) == (0, "", "")


def test_without_a_run_it_shows_the_latest_and_warns_off_loopback(run_dir: Path) -> None:
    with viewing("--host", "0.0.0.0", cwd=run_dir.parent.parent) as (process, lines, url):
        assert "warning: 0.0.0.0 is not loopback" in lines[0]
        with urllib.request.urlopen(url + "download/steps.csv", timeout=10) as answer:
            assert answer.read().decode().count("\n") == 2
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
        assert process.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["no/such/run"], "no/such/run does not exist"),
        ([], "No run found in ampscope-runs"),
        (["--port", "x"], "invalid int value"),
    ],
)
def test_a_mistake_is_one_sentence(
    arguments: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["view", "--no-browser", *arguments]) == 2
    err = capsys.readouterr().err
    assert sentence in err
    assert err.count("\n") == 1
