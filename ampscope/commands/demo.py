"""`ampscope demo`: the whole way on an example that trains for about a minute. Only calls the other commands."""

from __future__ import annotations

import argparse
from pathlib import Path

from ampscope.commands.values import whole_number
from ampscope.errors import AmpscopeError

EXAMPLE = "char_gpt.py"


class Command:
    """Record a short real training run, then diagnose and view it.

    A character-level GPT learns the source text of Python's standard library in fp16 mixed precision, on the
    accelerator if there is one and on the CPU otherwise.
    """

    def configure(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("-o", "--output", metavar="DIR", help="record into DIR (default: a new one in ampscope-runs/)")
        add("-f", "--force", action="store_true", help="replace the run that DIR holds")
        add("--steps", metavar="N", type=whole_number, default=60, help="optimizer steps (default: 60)")
        add("--dtype", choices=("fp16", "bf16", "fp32"), default="fp16", help="precision (default: fp16)")
        add("--no-view", action="store_true", help="end after the diagnosis")
        add(
            "--no-browser",
            action="store_true",
            help="serve the dashboard, print its address, open no browser",
        )

    def run(self, args: argparse.Namespace) -> int:
        from ampscope.commands import main
        from ampscope.trace.locate import DEFAULT_ROOT
        from ampscope.trace.runinfo import default_run_dir

        run_dir = args.output or str(default_run_dir(DEFAULT_ROOT, "demo"))
        force = ["-f"] if args.force else []
        script = [str(example()), "--steps", str(args.steps), "--dtype", args.dtype]
        status = main(["run", "-o", run_dir, *force, *script])
        if status != 0:
            return status
        status = main(["diagnose", run_dir])
        if status != 0 or args.no_view:
            return status
        return main(["view", run_dir, *(["--no-browser"] if args.no_browser else [])])


def example() -> Path:
    """The example script: beside the package in a source tree, inside it when installed."""
    import ampscope

    package = Path(ampscope.__file__).resolve().parent
    for folder in (package.parent / "examples", package / "_examples"):
        if (folder / EXAMPLE).is_file():
            return folder / EXAMPLE
    raise AmpscopeError(f"The example {EXAMPLE} is missing from this installation; reinstall ampscope.", 1)
