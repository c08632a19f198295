"""What is said when nothing was recorded, and that no failure at the end changes the end."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from ampscope.hooks.settings import Settings
from ampscope.launch import closing
from ampscope.launch.supervise import Ended
from ampscope.trace.records import ProcessInfo
from ampscope.trace.runinfo import claim_process, create_run, read_run


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    path = tmp_path / "run"
    create_run(path, ["train"], asdict(Settings(str(path))))
    return path


@pytest.mark.parametrize(
    ("argv", "flags"),
    [
        (["/usr/bin/python3.11", "-I", "x.py"], "-I"),
        (["env", "python", "-uE", "x.py"], "-uE"),
        (["python", "-u", "-S", "x.py"], "-S"),
        (["python", "x.py", "-I"], ""),
        (["python", "-m", "I"], ""),
        (["sort", "-S", "1"], ""),
        ([], ""),
    ],
)
def test_isolating_flags(argv: list[str], flags: str) -> None:
    assert closing.isolating_flags(argv) == flags


def test_close_completes_the_run(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    closing.close(run_dir, ["sh"], Ended(None, 15), closing.Speaker())
    info = read_run(run_dir)
    assert (info.state, info.exit_status, info.exit_signal) == ("complete", None, 15)
    err = capsys.readouterr().err
    assert err == (
        "[ampscope] nothing was recorded: the command ended with SIGTERM before a backward pass with torch\n"
        "[ampscope] next: see what it says above, then record it again\n"
    )


@pytest.mark.parametrize(
    ("ended", "said"),
    [
        (Ended(0, None), "no Python process of this command ran a backward pass with torch\n"),
        (Ended(1, None), "the command ended with status 1 before a backward pass with torch\n"),
        (Ended(None, 40), "the command ended with signal 40 before a backward pass with torch\n"),
    ],
)
def test_a_command_that_failed_is_not_sent_to_the_doctor(
    run_dir: Path, capsys: pytest.CaptureFixture[str], ended: Ended, said: str
) -> None:
    closing.close(run_dir, ["sh"], ended, closing.Speaker())
    err = capsys.readouterr().err
    assert err.startswith(f"[ampscope] nothing was recorded: {said}")
    assert ("ampscope doctor" in err) == (ended.status == 0)


@pytest.mark.parametrize(
    ("python", "next_command"),
    [("/other/python", "/other/python -m pip install ampscope"), (sys.executable, "ampscope doctor")],
)
def test_the_reason_of_a_process_is_told(
    run_dir: Path, capsys: pytest.CaptureFixture[str], python: str, next_command: str
) -> None:
    reason = f"{python} imports torch but is not recorded: ImportError: no pyarrow"
    (run_dir / closing.NOT_RECORDED).write_text(reason)
    closing.close(run_dir, ["sh"], Ended(0, None), closing.Speaker())
    assert capsys.readouterr().err == (
        f"[ampscope] nothing was recorded: {reason}\n[ampscope] next: {next_command}\n"
    )


def test_a_process_that_was_killed_at_once(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    claim_process(run_dir, 0, ProcessInfo())
    closing.close(run_dir, ["sh"], Ended(None, 9), closing.Speaker())
    assert "ended before the first rows were written" in capsys.readouterr().err


def test_a_trace_that_is_gone_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    closing.close(tmp_path / "gone", ["sh"], Ended(0, None), closing.Speaker())
    err = capsys.readouterr().err
    assert err.startswith("[ampscope] the trace in ")
    assert err.count("\n") == 1


def test_a_broken_part_is_one_line(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    part = run_dir / "steps" / "rank=0" / "part-000000.parquet"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"not parquet")
    closing.close(run_dir, ["sh"], Ended(0, None), closing.Speaker())
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"[ampscope] recorded no step in {run_dir}"
    assert "part-000000.parquet" in lines[1]
    assert all(line.startswith("[ampscope] ") for line in lines)


def test_ctrl_c_at_the_end_keeps_the_trace(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(closing, "say_nothing_recorded", interrupt)
    closing.close(run_dir, ["sh"], Ended(0, None), closing.Speaker())
    assert "interrupted" in capsys.readouterr().err


def test_a_quiet_or_deaf_speaker(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    closing.Speaker(quiet=True).line("x")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys, "stderr", None)
    closing.Speaker().line("x")
