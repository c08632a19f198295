"""The command line: one list of commands, one place that prints errors. It imports only the command it runs.

A command NAME is the file `ampscope/commands/NAME.py` with `class Command`: its docstring is the help text
(the first line is repeated in `COMMANDS`), `configure(parser)` adds its arguments, `run(args)` does the work
and returns the exit status. Whatever is slow to import is imported inside `run`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from textwrap import dedent
from typing import NoReturn, Protocol, cast

from ampscope.errors import AmpscopeError

COMMANDS: tuple[tuple[str, str], ...] = (
    ("run", "Run a training command unchanged and record its numerics."),
    ("diagnose", "Say what is wrong with a recorded run, with numbers, and what to change."),
    ("report", "Write a report of a run for a ticket: Markdown, HTML, JSON or zip."),
    ("view", "Open the local dashboard on one or more runs."),
    ("explain", "Print the page of a diagnosis: what it means, how it is decided, what to do."),
    ("fix", "Patch your own source for what the diagnosis of a run found."),
    ("verify", "Run the command again with the advice followed, and say whether it helped."),
    ("compare", "Run one command in several precisions, or compare two recorded runs."),
    ("export", "Write a run in the format of another tool: Perfetto or CSV."),
    ("demo", "Record a short real training run, then diagnose and view it."),
    ("doctor", "Check that this machine can record and view runs."),
)
"""(name, first line of the help text), in the order in which `ampscope --help` lists them."""


class CommandLike(Protocol):
    """What `class Command` of every command module offers."""

    def configure(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int: ...


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors go the way of all others: one sentence, exit status 2."""

    def error(self, message: str) -> NoReturn:
        sentence = message[:1].upper() + message[1:]
        raise AmpscopeError(f"{sentence.rstrip('.')}. Try `{self.prog} --help`.", 2)

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """Parses `argv`. An argument with `nargs=REMAINDER` is a command to run: own options end at its first
        word, at `-m`, `-c` or `-`, or at `--`, and everything from there belongs to it, options too."""
        command = [action for action in self._actions if action.nargs == argparse.REMAINDER]
        if not command:
            return self.parse_args(argv)
        end = self._end_of_options(argv)
        args = self.parse_args(argv[:end])
        setattr(args, command[0].dest, list(argv[end + 1 :] if argv[end : end + 1] == ["--"] else argv[end:]))
        return args

    def _end_of_options(self, argv: Sequence[str]) -> int:
        index = 0
        while index < len(argv):
            word = argv[index]
            if word in ("--", "-", "-m", "-c") or not word.startswith("-"):
                return index
            # `-fo DIR`: in a cluster of short options the last one may take the next word.
            last = word if word.startswith("--") or len(word) == 2 else self._last_of_cluster(word)
            action = self._option_string_actions.get(last)
            index += 2 if action is not None and action.nargs != 0 else 1
        return len(argv)

    def _last_of_cluster(self, word: str) -> str:
        flags = [self._option_string_actions.get(f"-{letter}") for letter in word[1:-1]]
        return f"-{word[-1]}" if all(flag is not None and flag.nargs == 0 for flag in flags) else ""


def load(name: str) -> CommandLike:
    """The command `name`, imported now."""
    return cast(CommandLike, import_module(f"ampscope.commands.{name}").Command())


def parser_of(name: str, command: CommandLike) -> Parser:
    """The argument parser of one command."""
    first, _, rest = (type(command).__doc__ or "").partition("\n")
    parser = Parser(
        prog=f"ampscope {name}",
        description=f"{first}\n{dedent(rest)}".rstrip(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.configure(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status; the only place that prints an AmpscopeError."""
    try:
        try:
            return _dispatch(list(sys.argv[1:] if argv is None else argv))
        finally:
            sys.stdout.flush()
    except AmpscopeError as error:
        print(f"[ampscope] error: {error}", file=sys.stderr)
        return error.exit_code
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BrokenPipeError:
        # The reader (head, less) has left: no traceback, also not from the flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        return 130


def _dispatch(argv: list[str]) -> int:
    name = argv[0] if argv else "--help"
    if name in dict(COMMANDS):
        command = load(name)
        return command.run(parser_of(name, command).parse(argv[1:]))
    if name in ("-h", "--help", "help"):
        print(_overview())
        return 0
    if name in ("-V", "--version"):
        print(f"ampscope {_version()}")
        return 0
    raise AmpscopeError(_unknown(argv), 2)


def _overview() -> str:
    width = max(len(name) for name, _ in COMMANDS)
    lines = [
        "usage: ampscope COMMAND …",
        "",
        "See, explain and fix the numerics of mixed-precision training in PyTorch.",
        "",
        "  ampscope run train.py --lr 1e-3    record a training script, unchanged",
        "  ampscope view                      look at the latest run",
        "",
        "commands:",
        *(f"  {name:<{width}}  {text}" for name, text in COMMANDS),
        "",
        "`ampscope COMMAND --help` explains one command.",
    ]
    return "\n".join(lines)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("ampscope")
    except PackageNotFoundError:
        return "(not installed: run from a source tree)"


def _unknown(argv: list[str]) -> str:
    import shlex
    from difflib import get_close_matches

    word = argv[0]
    names = [name for name, _ in COMMANDS]
    if word.startswith("-") and word != "-m":
        return f"Unknown option {word}. Try `ampscope --help`."
    close = get_close_matches(word, names, n=1)
    if close and not os.path.exists(word):
        return f"There is no command {word!r}. Did you mean `ampscope {close[0]}`?"
    if word == "-m" or os.path.exists(word) or word.endswith(".py") or len(argv) > 1:
        return f"There is no command {word!r}. To record a command: `ampscope run {shlex.join(argv)}`."
    return f"There is no command {word!r}. Commands: {', '.join(names)}. Try `ampscope --help`."
