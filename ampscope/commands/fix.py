"""`ampscope fix`: prints or applies the patch for what the diagnosis found. Never runs the user's code."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ampscope.errors import AmpscopeError

if TYPE_CHECKING:
    from ampscope.diagnose.finding import Finding
    from ampscope.patch.plan import Plan


class Command:
    """Patch your own source for what the diagnosis of a run found.

    RUN is the directory that `ampscope run` printed; without it the latest run below ampscope-runs/ is read.
    CODE, such as AMP101, picks findings; without it every warning and critical finding is taken.

    Prints a unified diff for `patch -p1` or `git apply`; --apply writes the files instead. Only edits that are
    mechanical at a known line are made, only in files of your own, and only in those that did not change
    since the run. For every other finding one line on stderr says why not, and what to do.

    Exit status: 0 a patch was made, 1 there is nothing to patch, 2 error.
    """

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.usage = "ampscope fix [RUN] [CODE …] [--apply]"
        parser.add_argument(
            "words", metavar="RUN, CODE", nargs="*", help="a run directory; codes of findings"
        )
        parser.add_argument("--apply", action="store_true", help="write the files instead of printing a diff")

    def run(self, args: argparse.Namespace) -> int:
        from ampscope.patch.unified import unified
        from ampscope.patch.write import write_patches

        made = _plan(*run_and_codes(args.words))
        _say(made)
        if not made.patches:
            return 1
        if args.apply:
            write_patches(made.patches)
            for patch in made.patches:
                print(f"[ampscope] wrote {patch.shown}", file=sys.stderr)
        else:
            sys.stdout.write(unified(made.patches))
        return 0


def run_and_codes(words: Sequence[str]) -> tuple[str | None, tuple[str, ...]]:
    """The run and the codes among the positional words. Raises AmpscopeError for two runs."""
    codes = tuple(word.upper() for word in words if re.fullmatch(r"AMP\d{3}", word, re.IGNORECASE))
    runs = [word for word in words if word.upper() not in codes]
    if len(runs) > 1:
        raise AmpscopeError(
            f"{runs[1]} is no code of a diagnosis such as AMP101, and one run is taken at a time."
        )
    return (runs[0] if runs else None), codes


def chosen(findings: Sequence[Finding], codes: Sequence[str]) -> list[Finding]:
    """The findings with one of the codes; without codes the warnings and critical ones.

    Raises AmpscopeError for a code that the diagnosis did not find.
    """
    if not codes:
        return [f for f in findings if f.severity != "info"]
    missing = [code for code in codes if code not in {f.code for f in findings}]
    if missing:
        found = ", ".join(dict.fromkeys(f.code for f in findings)) or "nothing"
        raise AmpscopeError(f"The diagnosis of this run did not find {missing[0]}; it found {found}.")
    return [f for f in findings if f.code in codes]


def _plan(run: str | None, codes: tuple[str, ...]) -> Plan:
    from pathlib import Path

    from ampscope.commands.damage import say_damage
    from ampscope.diagnose.engine import diagnose
    from ampscope.diagnose.silence import read_silence
    from ampscope.patch.plan import plan
    from ampscope.patch.project import Project
    from ampscope.trace.reader import open_trace

    with open_trace(run) as trace:
        say_damage(trace)
        findings = diagnose(trace, read_silence(Path.cwd())).findings
        return plan(Project.of(trace), chosen(findings, codes))


def _say(made: Plan) -> None:
    """What is patched and what is not, one line each, on stderr."""
    if not made.made and not made.refused:
        print("[ampscope] nothing to patch: no warning or critical finding", file=sys.stderr)
    for finding in made.made:
        print(f"[ampscope] {_named(finding)}: {finding.recommendation}", file=sys.stderr)
    for finding, why in made.refused:
        print(
            f"[ampscope] {_named(finding)} is not patched: {why}. {finding.recommendation}", file=sys.stderr
        )


def _named(finding: Finding) -> str:
    where = finding.where
    place = f" at {where.file.rpartition('/')[2]}:{where.line}" if where.file and where.line else ""
    return f"{finding.code} {finding.name}{place}"
