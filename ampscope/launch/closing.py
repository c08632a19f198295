"""After the command has ended: completes the trace and prints the closing block on stderr.

Nothing here may change how the run ends: every failure becomes one line.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ampscope.launch import orphans
from ampscope.launch.supervise import Ended
from ampscope.trace.runinfo import finish_run, read_run

if TYPE_CHECKING:
    from ampscope.trace.reader import Trace

NOT_RECORDED = "not-recorded"
"""File in the run directory in which a process says why it imported torch but is not recorded."""

_COMPACT_SECONDS = 20.0
"""Nobody waits longer at the end of a run for a tidier trace; the next reader goes on with it."""


@dataclass(frozen=True)
class Speaker:
    """Prints `[ampscope]` lines on stderr; says nothing when quiet or when nobody can hear it."""

    quiet: bool = False

    def line(self, text: str) -> None:
        if self.quiet or sys.stderr is None:
            return
        with contextlib.suppress(OSError, ValueError):
            print(f"[ampscope] {text}", file=sys.stderr, flush=True)


def close(run_dir: Path, argv: Sequence[str], ended: Ended, say: Speaker) -> None:
    """Completes the trace in `run_dir` and says what it holds. Ctrl-C leaves it as it is, readable."""
    from ampscope.trace.compact import compact

    try:
        finish_run(run_dir, ended.status, ended.signal)
        if not _has_rows(run_dir):
            say_nothing_recorded(run_dir, argv, ended, say)
            return
        compact(run_dir, seconds=_COMPACT_SECONDS)
        if not say.quiet:
            _say_verdict(run_dir, ended, say)
    except KeyboardInterrupt:
        say.line(f"interrupted; the trace in {run_dir} is kept as it is")
    except Exception as error:
        say.line(f"the trace in {run_dir} could not be completed: {type(error).__name__}: {error}")


def say_nothing_recorded(run_dir: Path, argv: Sequence[str], ended: Ended, say: Speaker) -> None:
    """Says that there is no row, why that may be, and what to do."""
    if read_run(run_dir).processes:
        say.line("nothing was recorded: the command ended before the first rows were written, within seconds")
        say.line("next: let it run longer, or end by itself")
        return
    with contextlib.suppress(OSError):
        reason = (run_dir / NOT_RECORDED).read_text(errors="replace").strip()
        say.line(f"nothing was recorded: {reason}")
        python = reason.partition(" imports torch")[0]
        other = python != sys.executable
        say.line(f"next: {shlex.quote(python)} -m pip install ampscope" if other else "next: ampscope doctor")
        return
    flags = isolating_flags(argv)
    if flags:
        say.line(f"nothing was recorded: python {flags} ignores PYTHONPATH, through which ampscope gets in")
        say.line(f"next: drop {flags}, or put `with ampscope.Recorder(...):` around the training loop")
        return
    if ended.status or ended.signal:
        how = _signal_name(ended.signal) if ended.signal else f"status {ended.status}"
        say.line(f"nothing was recorded: the command ended with {how} before a backward pass with torch")
        say.line("next: see what it says above, then record it again")
        return
    say.line("nothing was recorded: no Python process of this command ran a backward pass with torch")
    say.line("(python -I, -E, -S and a clean or overwritten PYTHONPATH keep ampscope out)")
    say.line("next: ampscope doctor")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # real-time signals between the first and the last have no name
        return f"signal {number}"


def isolating_flags(argv: Sequence[str]) -> str:
    """The first word of options with which a Python in `argv` keeps PYTHONPATH or `site` out, or ""."""
    pythons = [i for i, word in enumerate(argv) if re.fullmatch(r"python[0-9.]*", Path(word).name)]
    for index in pythons:
        for word in argv[index + 1 :]:
            if not re.fullmatch(r"-[A-Za-z]+", word):
                break
            if set(word[1:]) & set("IES"):
                return word
    return ""


def _has_rows(run_dir: Path) -> bool:
    return any(True for _ in run_dir.glob("*/rank=*/*.parquet"))


def _say_verdict(run_dir: Path, ended: Ended, say: Speaker) -> None:
    from ampscope.diagnose.engine import diagnose
    from ampscope.trace.reader import open_trace

    with open_trace(run_dir) as trace:
        end = f"; {_signal_name(ended.signal)} ended the command" if ended.signal else ""
        say.line(f"recorded {_extent(trace)} in {run_dir}{end}")
        if not trace.integrity.sound:
            say.line(trace.integrity.sentence)
        say.line(f"verdict: {diagnose(trace).verdict}")
    say.line(f"next: ampscope view {shlex.quote(str(run_dir))}")


def _extent(trace: Trace) -> str:
    """What was recorded, in words: `60 steps`, `60 steps of 2 processes`, `no step`."""
    row = trace.sql(
        "SELECT coalesce(max(step) + 1, 0) AS steps, count(DISTINCT (rank, proc)) AS processes FROM steps"
    ).iloc[0]
    steps, processes = int(row.steps), int(row.processes)
    words = f"{steps} step{'s' if steps != 1 else ''}" if steps else "no step"
    return f"{words} of {processes} processes" if processes > 1 else words


def start_viewer(run_dir: Path) -> subprocess.Popen[bytes]:
    """The dashboard on the run that now begins, out of reach of the terminal's signals. It prints on stderr."""
    import ampscope

    env = dict(os.environ)
    home = str(Path(ampscope.__file__).resolve().parent.parent)
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [home, env.get("PYTHONPATH")]))
    return subprocess.Popen(
        [sys.executable, "-m", "ampscope", "view", str(run_dir)],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        start_new_session=True,
        preexec_fn=orphans.kernel_bond(signal.SIGTERM),
    )
