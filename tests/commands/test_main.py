"""The command line as a whole: the list, lazy imports, errors in one place, where own options end."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ampscope import commands
from ampscope.commands import COMMANDS, Parser, load, main
from ampscope.errors import AmpscopeError

NAMES = [name for name, _ in COMMANDS]


@pytest.mark.parametrize(("name", "text"), COMMANDS)
def test_every_command_has_help_that_begins_as_listed(
    name: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (type(load(name)).__doc__ or "").splitlines()[0] == text
    assert main([name, "--help"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"usage: ampscope {name}")
    assert text in out
    assert err == ""


@pytest.mark.parametrize("page", ["README.md", "CHANGELOG.md"])
def test_every_command_is_in_the_pages_that_list_them(page: str) -> None:
    text = (Path(__file__).parents[2] / page).read_text()
    assert [name for name in NAMES if f"`ampscope {name}" not in text] == []


def test_help_lists_the_commands_and_imports_none() -> None:
    code = """
import sys
from ampscope.commands import main
status = main(["--help"])
heavy = {"torch", "numpy", "pyarrow", "duckdb", "pandas", "plotly", "dash", "rich", "typing_extensions"}
print(sorted(m for m in sys.modules if m in heavy or m.startswith("ampscope.")), status)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines if line.startswith("  ")][2:] == NAMES
    assert lines[-1] == "['ampscope.commands', 'ampscope.errors'] 0"


@pytest.mark.parametrize("words", [[], ["-h"], ["help"], ["--version"], ["-V"]])
def test_words_that_are_no_command(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    assert "ampscope" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train.py", "--lr", "1 2"], "`ampscope run train.py --lr '1 2'`"),
        (["-m", "my.trainer"], "`ampscope run -m my.trainer`"),
        (["torchrun", "train.py"], "`ampscope run torchrun train.py`"),
        (["diagnoze"], "Did you mean `ampscope diagnose`?"),
        (["frobnicate"], "Commands: run, "),
        (["--json"], "Unknown option --json"),
        (["run", "--every", "x", "true"], "must be a whole number from 1, not 'x'"),
        (["run", "--nope", "true"], "nrecognized arguments: --nope"),
    ],
)
def test_errors_are_one_line_on_stderr(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("[ampscope] error: ")
    assert err.count("\n") == 1
    assert said in err


def test_the_exit_code_is_that_of_the_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Failing:
        """Fail."""

        def configure(self, parser: argparse.ArgumentParser) -> None:
            parser.add_argument("how")

        def run(self, args: argparse.Namespace) -> int:
            if args.how == "interrupt":
                raise KeyboardInterrupt
            raise AmpscopeError("The gate is shut.", 125)

    monkeypatch.setattr(commands, "load", lambda name: Failing())
    assert main(["run", "gate"]) == 125
    assert capsys.readouterr().err == "[ampscope] error: The gate is shut.\n"
    assert main(["run", "interrupt"]) == 130


def test_a_reader_that_leaves_is_no_error() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    code = "import sys; from ampscope.commands import main; sys.exit(main([]))"
    done = subprocess.run([sys.executable, "-c", code], stdout=write_end, stderr=subprocess.PIPE, check=False)
    os.close(write_end)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.fixture
def parser() -> Parser:
    made = Parser(prog="ampscope x", allow_abbrev=False)
    made.add_argument("-o", "--output")
    made.add_argument("-f", action="store_true")
    made.add_argument("-q", action="store_true")
    made.add_argument("--set", action="append")
    made.add_argument("command", nargs=argparse.REMAINDER)
    return made


@pytest.mark.parametrize(
    ("words", "output", "command"),
    [
        ("train.py -o x", None, "train.py -o x"),
        ("-o dir train.py -q", "dir", "train.py -q"),
        ("-odir --set a=b -f train.py", "dir", "train.py"),
        ("--output=dir -- -q", "dir", "-q"),
        ("-fqo dir -m pkg --set", "dir", "-m pkg --set"),
        ("-q -c code", None, "-c code"),
        ("-f - x", None, "- x"),
        ("-- a -- b", None, "a -- b"),
        ("-o -- train.py", None, None),
        ("-q", None, ""),
        ("", None, ""),
    ],
)
def test_own_options_end_at_the_command(
    parser: Parser, words: str, output: str | None, command: str | None
) -> None:
    if command is None:
        with pytest.raises(AmpscopeError, match="expected one argument"):
            parser.parse(words.split())
        return
    args = parser.parse(words.split())
    assert (args.output, args.command) == (output, command.split())
