"""`ampscope compare`: one command in several precisions, or two recorded runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ampscope.commands.values import whole_number
from ampscope.errors import AmpscopeError

if TYPE_CHECKING:
    from rich.console import Console


class Command:
    """Run one command in several precisions, or compare two recorded runs.

      ampscope compare --precision fp32,bf16,fp16 -- train.py --lr 1e-3
      ampscope compare RUN_A RUN_B

    With --precision the command runs once in each, one after the other, with its autocast contexts, GradScaler
    and matmul precision overridden and everything else as it is; what it prints goes into output.log of each
    run. The table has the median time of a step, steps per second, peak memory, skipped steps, the last loss, how
    far the loss curve is from that of the first precision, and the verdict of each diagnosis.

    Two runs are joined by the names of their tensors: settings that differ, the losses, the first tensor that
    differs by more than rounding explains, and the findings that only one of them has.
    """

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.usage = (
            "ampscope compare --precision P,P… [-o DIR] [--steps N] [--json] -- COMMAND …\n"
            "       ampscope compare RUN_A RUN_B [--json]"
        )
        add = parser.add_argument
        add(
            "--precision",
            metavar="P,P…",
            type=_precisions,
            help="of fp32, tf32, bf16 and fp16; the first is the base",
        )
        add(
            "-o",
            "--output",
            metavar="DIR",
            type=Path,
            help="record into DIR/P (default: a new one in ampscope-runs/)",
        )
        add("--steps", metavar="N", type=whole_number, help="end each run after N optimizer steps")
        add("--json", action="store_true", help="print JSON")
        add("command", metavar="COMMAND", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)

    def run(self, args: argparse.Namespace) -> int:
        words: list[str] = args.command
        if args.precision is not None:
            return _precision_table(args, words)
        as_json = args.json or "--json" in words
        runs = [word for word in words if word != "--json"]
        if len(runs) != 2:
            raise AmpscopeError(
                "Name two runs, or precisions and a command: `ampscope compare RUN_A RUN_B`, "
                "`ampscope compare --precision fp32,bf16 -- train.py`."
            )
        return _two_runs(runs, as_json)


def _precisions(text: str) -> tuple[str, ...]:
    from ampscope.launch.options import PRECISIONS

    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    unknown = [name for name in names if name not in PRECISIONS]
    if unknown or not names:
        raise argparse.ArgumentTypeError(f"must be of {', '.join(PRECISIONS)}, with commas, not {text!r}")
    return names


def _precision_table(args: argparse.Namespace, words: Sequence[str]) -> int:
    from ampscope.compare.jsonable import precisions_json
    from ampscope.compare.precisions import compare_precisions
    from ampscope.compare.terminal import print_precisions
    from ampscope.launch.command import resolve, run_name
    from ampscope.trace.locate import DEFAULT_ROOT
    from ampscope.trace.runinfo import default_run_dir

    argv = resolve(words)
    folder: Path = args.output or default_run_dir(DEFAULT_ROOT, f"compare-{run_name(words)}")
    with _Progress() as progress:
        table = compare_precisions(argv, args.precision, folder, Path.cwd(), args.steps, progress=progress)
    if args.json:
        _print_json(precisions_json(table))
    else:
        print_precisions(table, _console())
        print(f"[ampscope] runs and logs: {folder}", file=sys.stderr)
    return 0 if any(row.headline is not None for row in table.rows) else 2


def _two_runs(names: Sequence[str], as_json: bool) -> int:
    from ampscope.commands.damage import say_damage
    from ampscope.compare.jsonable import runs_json
    from ampscope.compare.runs import compare_runs
    from ampscope.compare.terminal import print_runs
    from ampscope.trace.reader import open_trace

    with open_trace(names[0]) as one, open_trace(names[1]) as two:
        say_damage(one)
        say_damage(two)
        found = compare_runs(one, two)
    if as_json:
        _print_json(runs_json(found))
    else:
        print_runs(found, _console())
    return 0


def _print_json(value: dict[str, Any]) -> None:
    import json

    print(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def _console() -> Console:
    from rich.console import Console

    # Piped output keeps one width, whatever COLUMNS a CI job happens to set.
    return Console(width=None if sys.stdout.isatty() else 120)


class _Progress:
    """Says on stderr which precision runs and how far it is."""

    def __init__(self) -> None:
        from rich.console import Console

        self.console = Console(stderr=True)
        self.status = self.console.status("starting")
        self.told = ""

    def __enter__(self) -> _Progress:
        if self.console.is_terminal:
            self.status.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.status.stop()

    def __call__(self, precision: str, taken: int) -> None:
        if self.console.is_terminal:
            self.status.update(f"running in {precision}: step {taken}")
        elif precision != self.told:
            print(f"[ampscope] running in {precision}", file=sys.stderr, flush=True)
        self.told = precision
