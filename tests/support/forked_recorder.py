"""`ampscope.rerun.trial.record` by the fork server: a script is recorded in a fork that has torch imported already."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ampscope.hooks.settings import Settings
from ampscope.launch.supervise import Ended
from ampscope.rerun.trial import Trial
from ampscope.trace.runinfo import create_run, finish_run
from tests.support.forkserver import ForkServer


class ForkedRecorder:
    """Runs the script `argv[1]` to its end, whatever steps are asked for; remembers what it was asked."""

    def __init__(self, server: ForkServer) -> None:
        self.server = server
        self.asked: list[tuple[list[str], Settings, int | None]] = []

    def __call__(
        self,
        argv: Sequence[str],
        run_dir: Path,
        settings: Settings,
        cwd: Path,
        steps: int | None = None,
        progress: Callable[[int], None] = lambda taken: None,
    ) -> Trial:
        self.asked.append((list(argv), settings, steps))
        create_run(run_dir, argv, {"overrides": settings.overrides})
        env: dict[str, str] = {}
        settings.to_env(env)
        outcome = self.server.run(Path(argv[1]), argv[2:], env=env, cwd=cwd)
        progress(0)
        log = run_dir / "output.log"
        log.write_text(outcome.stdout + outcome.stderr)
        status, number = (outcome.status, None) if outcome.status >= 0 else (None, -outcome.status)
        finish_run(run_dir, status, number)
        return Trial(run_dir, Ended(status, number), False, log)
