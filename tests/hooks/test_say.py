from __future__ import annotations

import io
import sys

import pytest

from ampscope.hooks.say import say
from ampscope.hooks.settings import Settings


@pytest.mark.parametrize(("quiet", "expected"), [(False, "[ampscope] hello\n"), (True, "")])
def test_a_line_on_stderr_unless_quiet(
    quiet: bool, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    say(Settings(run_dir="", quiet=quiet), "hello")
    assert capsys.readouterr() == ("", expected)


def test_without_a_stderr_nothing_goes_to_stdout(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    closed = io.StringIO()
    closed.close()
    for stream in (None, closed):
        monkeypatch.setattr(sys, "stderr", stream)
        say(Settings(run_dir=""), "hello")
    monkeypatch.undo()
    assert capsys.readouterr().out == ""
