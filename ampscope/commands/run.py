"""`ampscope run`: options to settings, then the launch. The recorder lives in the command's own process."""

from __future__ import annotations

import argparse
import contextlib
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from ampscope.commands.values import whole_number
from ampscope.errors import AmpscopeError
from ampscope.hooks.settings import LEVELS
from ampscope.trace.locate import DEFAULT_ROOT

if TYPE_CHECKING:
    from ampscope.hooks.settings import Settings


def budget(text: str) -> float:
    """A share of wall time in percent, above 0 and up to 100."""
    with contextlib.suppress(ValueError):
        if 0 < float(text) <= 100:
            return float(text)
    raise argparse.ArgumentTypeError(f"must be a number above 0 and up to 100, not {text!r}")


class Command:
    """Run a training command unchanged and record its numerics.

    COMMAND is what you would type without ampscope; its own options follow it untouched:

      ampscope run train.py --lr 1e-3
      ampscope run -m my.trainer --help
      ampscope run torchrun --nproc-per-node 2 train.py
      ampscope run bash train.sh

    Every Python process below it that trains is recorded. Exit status and signals are the command's own,
    stdout is the command's alone. 2: a wrong option or output directory, and nothing was started; 125: the
    command could not be started; 126, 127: as env(1).
    """

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.usage = "ampscope run [options] COMMAND …"
        add = parser.add_argument
        add("-o", "--output", metavar="DIR", help=f"record into DIR (default: a new one in {DEFAULT_ROOT}/)")
        add("-f", "--force", action="store_true", help="replace the run that DIR holds")
        pace = parser.add_mutually_exclusive_group()
        pace.add_argument(
            "--budget", metavar="PCT", type=budget, default=2.0,
            help="ampscope's share of wall time in percent (default: 2)",
        )  # fmt: skip
        pace.add_argument(
            "--every", metavar="N", type=whole_number, help="read the tensors of every Nth step"
        )
        add("--level", choices=LEVELS, default="watch", help="the most that may be read (default: watch)")
        add("--watch", action="store_true", help="look for the first non-finite op from the first step on")
        add("--steps", metavar="A:B", help="read tensors only in steps A <= step < B")
        add("--tensors", metavar="GLOB", help="read only the parameters and modules whose name matches")
        add("--set", metavar="K=V", action="append", default=[], dest="pairs",
            help="change the precision of the run, e.g. autocast.dtype=bfloat16 (repeatable)")  # fmt: skip
        add("--precision", choices=("fp32", "tf32", "fp16", "bf16"), help="a preset of --set")
        add("--exact", action="store_true", help="compare every element at an update, not a fixed subset")
        add("--eager-census", action="store_true", help="run sampled steps of a compiled model in eager mode")
        add("--live", action="store_true", help="open the dashboard while the run goes on")
        add("-q", "--quiet", action="store_true", help="print nothing but errors of the launch")
        add("--strict", action="store_true", help="let an error inside ampscope end the run")
        add("command", metavar="COMMAND", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)

    def run(self, args: argparse.Namespace) -> int:
        from ampscope.launch import closing
        from ampscope.launch.command import child_environment, resolve, run_name
        from ampscope.launch.supervise import leave_like, supervise
        from ampscope.trace.runinfo import create_run, default_run_dir, finish_run, point_latest

        argv = resolve(args.command)
        run_dir = Path(args.output) if args.output else default_run_dir(DEFAULT_ROOT, run_name(args.command))
        settings = settings_of(args, run_dir)
        create_run(run_dir, argv, asdict(settings), args.force)
        if run_dir.parent == Path(DEFAULT_ROOT):
            point_latest(run_dir)
        (run_dir / closing.NOT_RECORDED).unlink(missing_ok=True)
        say = closing.Speaker(args.quiet)
        say.line(f"recording to {run_dir}")
        viewer = closing.start_viewer(run_dir) if args.live else None
        try:
            ended = supervise(argv, child_environment(settings, os.environ))
        except AmpscopeError as error:
            finish_run(run_dir, error.exit_code)
            raise
        finally:
            if viewer is not None:
                viewer.terminate()
                viewer.wait()
        closing.close(run_dir, argv, ended, say)
        return leave_like(ended)


def settings_of(args: argparse.Namespace, run_dir: Path) -> Settings:
    """The settings that travel to the training process. Raises AmpscopeError for a value that cannot be."""
    from ampscope.hooks.settings import Settings
    from ampscope.launch.options import overrides, step_range

    return Settings(
        run_dir=os.path.abspath(run_dir),
        level=args.level,
        every=args.every,
        budget=args.budget,
        watch=args.watch,
        steps=step_range(args.steps) if args.steps else None,
        tensors=args.tensors,
        overrides=overrides(args.pairs, args.precision),
        exact=args.exact,
        eager_census=args.eager_census,
        quiet=args.quiet,
        strict=args.strict,
    )
