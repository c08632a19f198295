"""Recording from inside a script or a notebook: the same session that `ampscope run` installs."""

from __future__ import annotations

import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from ampscope.hooks.install import start, stop
from ampscope.hooks.session import Session
from ampscope.hooks.settings import LEVELS, Settings
from ampscope.trace.runinfo import create_run, finish_run


class Recorder:
    """Context manager that records what trains inside it into the run directory `path`.

    >>> with ampscope.Recorder("runs/first"):                                        # doctest: +SKIP
    ...     train()

    `level` is pulse, range, census or watch (the default); `every` fixes the interval of the range level in
    steps; `budget` is ampscope's share of wall time in percent. Other keywords are those of
    `ampscope.hooks.settings.Settings`. An existing run is refused unless `force`. Optimizers and scalers made
    before the block are seen from their first call in it; hooks go away at its end.

    Raises AmpscopeError when `path` holds a run already, ValueError for an unknown level.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        level: str = "watch",
        every: int | None = None,
        budget: float = 2.0,
        force: bool = False,
        quiet: bool = True,
        **settings: Any,
    ) -> None:
        if level not in LEVELS:
            raise ValueError(f"Unknown level {level!r}: use one of {', '.join(LEVELS)}.")
        self.path = Path(path)
        self._force = force
        self._settings = Settings(
            run_dir=str(self.path.absolute()),
            level=level,
            every=every,
            budget=budget,
            quiet=quiet,
            **settings,
        )
        self._session: Session | None = None

    def __enter__(self) -> Recorder:
        create_run(self.path, sys.argv, {"level": self._settings.level, "recorder": True}, self._force)
        self._session = start(self._settings)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        if error is not None:
            session.note_exception(error)
        stop(session)
        finish_run(self.path, 1 if error is not None else 0)
