"""`ampscope diagnose`: opens a run, runs the rules, prints what they say."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from ampscope.diagnose.diagnosis import Diagnosis
    from ampscope.diagnose.finding import Severity
    from ampscope.trace.reader import Trace


class Command:
    """Say what is wrong with a recorded run, with numbers, and what to change.

    RUN is the directory that `ampscope run` printed; without it the latest run below ampscope-runs/ is read.
    Exit status: 0, 1 with findings at or above --fail-on, 2 for a run that cannot be read.

    Codes that a project does not want to hear of stand in its pyproject.toml, each with a reason:

      [tool.ampscope]
      silence = { AMP112 = "the schedule is per epoch on purpose" }
    """

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("run", metavar="RUN", nargs="?", help="a run directory (default: the latest)")
        parser.add_argument(
            "--json", action="store_true", help="print JSON (diagnose/schema.json describes it)"
        )
        parser.add_argument(
            "--fail-on",
            metavar="SEVERITY",
            choices=("critical", "warning", "info"),
            help="exit 1 when a finding is at least this bad: critical, warning or info",
        )

    def run(self, args: argparse.Namespace) -> int:
        from pathlib import Path

        from ampscope.commands.damage import say_damage
        from ampscope.diagnose.engine import diagnose
        from ampscope.diagnose.silence import read_silence
        from ampscope.trace.reader import open_trace

        silence = read_silence(Path.cwd())
        with open_trace(args.run) as trace:
            diagnosis = diagnose(trace, silence)
            if args.json:
                say_damage(trace)
                _print_json(diagnosis)
            else:
                _print_text(diagnosis, trace)
        limit = cast("Severity | None", args.fail_on)
        return 1 if limit is not None and diagnosis.at_or_above(limit) else 0


def _print_json(diagnosis: Diagnosis) -> None:
    import json

    print(json.dumps(diagnosis.to_json(), indent=2, ensure_ascii=False, allow_nan=False))


def _print_text(diagnosis: Diagnosis, trace: Trace) -> None:
    import os
    import shutil
    import sys

    from ampscope.diagnose.terminal import as_text

    # Piped output keeps 80 columns, whatever COLUMNS a CI job happens to set.
    terminal = sys.stdout.isatty()
    width = min(120, shutil.get_terminal_size().columns) if terminal else 80
    color = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    sys.stdout.write(as_text(diagnosis, trace.info.cwd, width, color))
    if not trace.integrity.sound:
        print(trace.integrity.sentence)
