"""`ampscope verify`: tries the advice for a recorded run and keeps what that showed with the run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ampscope.commands.values import whole_number
from ampscope.errors import AmpscopeError

if TYPE_CHECKING:
    from ampscope.diagnose.finding import Finding
    from ampscope.trace.reader import Trace
    from ampscope.verify.outcome import How, Outcome


class Command:
    """Run the command again with the advice followed, and say whether it helped.

    RUN is the directory that `ampscope run` printed; without it the latest run below ampscope-runs/ is read.
    CODE, such as AMP403, picks findings; without it every warning and critical finding is tried whose advice
    can be. The recorded command runs once per finding, in the directory where it ran, with the finding's
    `--set` overrides (or, with --patched, from a copy of your source patched as `ampscope fix` would), and is
    ended after enough steps to decide. It does what it did: what it writes, it writes again.

    The outcome, "verified", "refuted" or "undecidable" with the numbers before and after, is printed and goes
    into the report of RUN.

    Exit status: 0 all advice that was tried is verified, 1 some is refuted, 2 nothing could be decided.
    """

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.usage = "ampscope verify [RUN] [CODE …] [--patched] [--steps N] [-o DIR]"
        parser.add_argument(
            "words", metavar="RUN, CODE", nargs="*", help="a run directory; codes of findings"
        )
        parser.add_argument("--patched", action="store_true", help="try the patch instead of the overrides")
        parser.add_argument(
            "--steps",
            metavar="N",
            type=whole_number,
            help="optimizer steps to take (default: enough to decide)",
        )
        parser.add_argument(
            "-o",
            "--output",
            metavar="DIR",
            type=Path,
            help="keep the new recordings in DIR (default: nowhere)",
        )

    def run(self, args: argparse.Namespace) -> int:
        from ampscope.commands.damage import say_damage
        from ampscope.commands.fix import chosen, run_and_codes
        from ampscope.diagnose.engine import diagnose
        from ampscope.diagnose.silence import read_silence
        from ampscope.trace.reader import open_trace
        from ampscope.verify.outcome import write_outcomes

        run, codes = run_and_codes(args.words)
        how: How = "patch" if args.patched else "set"
        outcomes: list[Outcome] = []
        with open_trace(run) as trace:
            say_damage(trace)
            findings = chosen(diagnose(trace, read_silence(Path.cwd())).findings, codes)
            todo = findings if codes or args.patched else [f for f in findings if f.change.set]
            if not todo:
                raise AmpscopeError(_nothing(findings, args.patched))
            for index, finding in enumerate(todo):
                folder = None if args.output is None else args.output / f"{index + 1}-{finding.code}"
                outcomes.append(_try(trace, finding, how, folder, args.steps))
                print(f"{finding.code} {outcomes[-1].sentence}", flush=True)
                write_outcomes(trace.path, [outcomes[-1]])
        return _status(outcomes)


def _nothing(findings: list[Finding], patched: bool) -> str:
    if not findings:
        return "There is nothing to verify: the diagnosis has no warning or critical finding."
    codes = ", ".join(dict.fromkeys(f.code for f in findings))
    hint = "" if patched else " Try the patch: `ampscope verify --patched`."
    return f"No advice for this run ({codes}) can be followed by an override.{hint}"


def _try(trace: Trace, finding: Finding, how: How, folder: Path | None, steps: int | None) -> Outcome:
    import tempfile

    from ampscope.verify.trying import verify

    if folder is None:
        with tempfile.TemporaryDirectory(prefix="ampscope-verify-") as temporary, _shown(finding) as progress:
            return verify(trace, finding, how, Path(temporary), steps, progress=progress)
    try:
        folder.mkdir(parents=True, exist_ok=False)
    except OSError as error:
        raise AmpscopeError(
            f"{folder} cannot be made ({error.strerror or error}); choose another -o."
        ) from error
    with _shown(finding) as progress:
        return verify(trace, finding, how, folder.resolve(), steps, progress=progress)


@contextmanager
def _shown(finding: Finding) -> Iterator[Progress]:
    """A line on stderr that says how far the re-run is, where somebody can see it."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        print(f"[ampscope] running the command again to verify {finding.code}", file=sys.stderr, flush=True)
        yield lambda taken, wanted: None
        return
    with console.status(f"verifying {finding.code}") as status:
        yield lambda taken, wanted: status.update(f"verifying {finding.code}: step {taken} of {wanted}")


def _status(outcomes: list[Outcome]) -> int:
    verdicts = {outcome.verdict for outcome in outcomes}
    if "refuted" in verdicts:
        return 1
    return 0 if "verified" in verdicts else 2


if TYPE_CHECKING:
    from collections.abc import Callable

    Progress = Callable[[int, int], None]
