"""One recorded run of a command, made by ampscope itself: a run directory, a log, and how it ended."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from ampscope.errors import AmpscopeError
from ampscope.hooks.settings import Settings
from ampscope.launch.command import child_environment
from ampscope.launch.supervise import Ended
from ampscope.rerun.child import run_child
from ampscope.trace.reader import Trace, open_trace
from ampscope.trace.runinfo import create_run, finish_run

FLUSH_SECONDS = 0.5
"""The step count of a running trial is read from its trace: it must not lag far behind."""


@dataclass(frozen=True)
class Trial:
    """`stopped`: ended by us once it had taken the steps that were asked for. `log` holds what it printed."""

    run_dir: Path
    ended: Ended
    stopped: bool
    log: Path

    @property
    def failed(self) -> bool:
        """Whether the command ended by itself with an error."""
        return not self.stopped and (self.ended.signal is not None or self.ended.status != 0)


class Recorder(Protocol):
    """Records a command; `record` is the real one."""

    def __call__(
        self,
        argv: Sequence[str],
        run_dir: Path,
        settings: Settings,
        cwd: Path,
        steps: int | None,
        progress: Callable[[int], None],
    ) -> Trial: ...


def record(
    argv: Sequence[str],
    run_dir: Path,
    settings: Settings,
    cwd: Path,
    steps: int | None = None,
    progress: Callable[[int], None] = lambda taken: None,
) -> Trial:
    """Run `argv` in `cwd`, recorded into `run_dir`, until it ends or has taken `steps` optimizer steps.

    `progress` is told the steps taken so far, now and then. Raises AmpscopeError when it cannot be started.
    """
    create_run(run_dir, argv, asdict(settings))
    log = run_dir / "output.log"
    watch = _StepWatch(run_dir, steps, progress)
    try:
        env = child_environment(settings, os.environ)
        ended, stopped = run_child(argv, cwd, env, log, watch.enough)
    except BaseException as error:
        with contextlib.suppress(OSError):
            finish_run(run_dir, error.exit_code if isinstance(error, AmpscopeError) else None)
        raise
    finally:
        watch.close()
    finish_run(run_dir, ended.status, ended.signal)
    return Trial(run_dir, ended, stopped, log)


class _StepWatch:
    """Reads the number of steps from the trace of a run that goes on."""

    def __init__(self, run_dir: Path, steps: int | None, progress: Callable[[int], None]) -> None:
        self.run_dir = run_dir
        self.steps = steps
        self.progress = progress
        self._trace: Trace | None = None

    def enough(self) -> bool:
        taken = self._taken()
        self.progress(taken)
        return self.steps is not None and taken >= self.steps

    def _taken(self) -> int:
        if self._trace is None:
            self._trace = open_trace(self.run_dir)
        self._trace.refresh()
        return steps_taken(self._trace)

    def close(self) -> None:
        if self._trace is not None:
            self._trace.close()


def steps_taken(trace: Trace) -> int:
    """Optimizer steps, skipped ones included, of the process that took the fewest; 0 before the first."""
    frame = trace.sql(
        "SELECT coalesce(min(n), 0) AS n FROM (SELECT max(step) + 1 AS n FROM steps "
        "WHERE outcome IN ('stepped', 'skipped') GROUP BY rank, proc)"
    )
    return int(frame["n"].iloc[0])


def trial_settings(run_dir: Path, overrides: dict[str, list[str]], watch: bool = False) -> Settings:
    """Settings of a trial: everything is read as often as is useful, quietly; here cost matters less."""
    return Settings(
        run_dir=os.path.abspath(run_dir),
        level="watch",
        budget=100.0,
        watch=watch,
        overrides=overrides,
        flush_seconds=FLUSH_SECONDS,
        quiet=True,
    )
