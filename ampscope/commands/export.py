"""`ampscope export`: writes a run in the format of another tool."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ampscope.errors import AmpscopeError

if TYPE_CHECKING:
    from ampscope.trace.reader import Trace


class Command:
    """Write a run in the format of another tool: Perfetto or CSV.

    perfetto  one JSON file of steps, phases, modules, kernels and counters, for https://ui.perfetto.dev
    csv       a folder with one file per table; empty means not measured

    RUN is the directory that `ampscope run` printed; without it the latest run below ampscope-runs/ is read.
    Nothing is taken out of an export: use `ampscope report` for what leaves the machine.
    """

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("run", metavar="RUN", nargs="?", help="a run directory (default: the latest)")
        parser.add_argument("--to", required=True, choices=("perfetto", "csv"), help="the format")
        parser.add_argument(
            "-o",
            "--output",
            metavar="PATH",
            type=Path,
            help="file or folder (default: RUN.perfetto.json, RUN-csv)",
        )

    def run(self, args: argparse.Namespace) -> int:
        import sys

        from ampscope.commands.damage import say_damage
        from ampscope.trace.reader import open_trace

        with open_trace(args.run) as trace:
            say_damage(trace)
            name = f"{trace.path.name}.perfetto.json" if args.to == "perfetto" else f"{trace.path.name}-csv"
            output: Path = args.output or Path(name)
            try:
                told = _perfetto(trace, output) if args.to == "perfetto" else _csv(trace, output)
            except OSError as error:
                reason = error.strerror or str(error)
                raise AmpscopeError(
                    f"{output} could not be written ({reason}); name another with -o."
                ) from error
        print(f"[ampscope] wrote {output} ({told})", file=sys.stderr)
        return 0


def _perfetto(trace: Trace, output: Path) -> str:
    import os

    from ampscope.report import perfetto

    part = output.with_name(f"{output.name}.{os.getpid()}.tmp")
    try:
        with open(part, "w", encoding="utf-8") as file:
            count = perfetto.write(trace, file)
        part.replace(output)
    finally:
        part.unlink(missing_ok=True)
    return f"{count} events; open it at https://ui.perfetto.dev"


def _csv(trace: Trace, output: Path) -> str:
    from ampscope.report import tables_csv

    written = tables_csv.write(trace, output)
    return ", ".join(f"{name} {count} rows" for name, count in written.items()) or "no table has rows"
