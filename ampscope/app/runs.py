"""The runs that the dashboard shows: opened on first use, refreshed while they are live, diagnosed once per state."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ampscope.app.judge import Judge
from ampscope.app.queries import runlog
from ampscope.app.queries.source import Cache, Source
from ampscope.app.state import View
from ampscope.errors import AmpscopeError

if TYPE_CHECKING:
    from ampscope.diagnose.diagnosis import Diagnosis
    from ampscope.trace.reader import Trace


POLITE_SECONDS = 0.15
"""How long no request may have come before the next query is run ahead."""


GIVE_WAY_SECONDS = 2.0
"""How long a query of the diagnosis waits at most for requests to be served."""


class OpenRun:
    """One run, opened. Safe to use from the server's threads."""

    def __init__(self, name: str, trace: Trace, pause: Callable[[], None] = lambda: None) -> None:
        self.name = name
        self.trace = trace
        self.cache = Cache(trace)
        self.judge = Judge(trace, pause)
        self.version = 0
        """Grows whenever there is something new to show."""

    @property
    def live(self) -> bool:
        return self.trace.info.state == "live"

    def refresh(self) -> None:
        """Takes in what was recorded since; forgets what was computed from the old state."""
        state = self.trace.info.state
        if self.trace.refresh() or self.trace.info.state != state:
            self.judge.forget()
            self.cache.clear()
            self.version += 1

    def diagnosis(self) -> Diagnosis:
        """What the rules say of the run as it is now. Waits for it: a part that asks for it says `judged`, and is
        rendered only when it is there."""
        found = self.judge.wait()
        assert found is not None  # without a limit `wait` ends with a diagnosis or raises
        return found

    def processes(self) -> list[tuple[int, int]]:
        """(rank, proc) of every recorded process; one placeholder for a run without steps."""
        return runlog.processes(Source(self.cache)) or [(0, 0)]

    def source(self, view: View) -> Source:
        """The process that the address names (`process=RANK.PROC`), or the first one."""
        known = self.processes()
        labels = [f"{rank}.{proc}" for rank, proc in known]
        rank, proc = known[labels.index(view.choice("process", labels))]
        return Source(self.cache, rank, proc)


class RunStore:
    """The runs named on the command line, newest first as given. Names are unique and stand in addresses."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = _named(paths)
        self._open: dict[str, OpenRun] = {}
        self._lock = threading.Lock()
        self._closing = False
        self._serving = 0

    @property
    def names(self) -> list[str]:
        return list(self._paths)

    def name_of(self, view: View) -> str:
        """The run of an address: `run=NAME`, or the first."""
        return view.choice("run", self.names)

    def get(self, name: str) -> OpenRun:
        """The opened run. Raises AmpscopeError when it cannot be read (any more)."""
        from ampscope.trace.reader import open_trace

        with self._lock:
            found = self._open.get(name)
            if found is None:
                path = self._paths.get(name)
                if path is None:
                    raise AmpscopeError(f"There is no run {name!r} in this dashboard.")
                found = self._open[name] = OpenRun(name, open_trace(path), self.give_way)
            return found

    def warm(self) -> None:
        """Runs the slow queries of the first run ahead of the first click. Meant for a thread; never raises."""
        from ampscope.app.queries import replay, summary, tensors

        try:
            src = self.get(self.names[0]).source(View())
            kinds, near = tensors.held(src), tensors.gradients(src)
            work: list[Callable[[], object]] = [partial(summary.flushed, src)]
            for kind in near:
                work += [partial(tensors.sampled, src, kind.role, kind.stage)]
            work += [partial(tensors.limits, src), partial(replay.obstacle, src), partial(replay.rounds, src)]
            # Those that are opened by what is below the range of float16 first: the others are quick.
            for kind in sorted(kinds, key=lambda k: k not in near):
                work += [partial(tensors.heat, src, kind.role, kind.stage, "grad" in kind.role)]
            for query in work:
                if not self._quiet():
                    return
                query()
        except Exception as error:
            # The page that needs the same query shows the error; here it would only be noise.
            print(f"[ampscope] the dashboard could not prepare its pages: {error}", file=sys.stderr)

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Round the work for a request: `warm` waits meanwhile."""
        with self._lock:
            self._serving += 1
        try:
            yield
        finally:
            with self._lock:
                self._serving -= 1

    def give_way(self) -> None:
        """Waits while a request is served, but not for long: the diagnosis has to come to its end too."""
        end = time.monotonic() + GIVE_WAY_SECONDS
        while self._serving and not self._closing and time.monotonic() < end:
            time.sleep(0.02)

    def _quiet(self) -> bool:
        """Waits until no request has been served for a moment; False when the dashboard ends."""
        still = 0
        while still < 3 and not self._closing:
            still = 0 if self._serving else still + 1
            time.sleep(POLITE_SECONDS / 3)
        return not self._closing

    def stop(self) -> None:
        """Ends `warm` after its current query."""
        self._closing = True

    def close(self) -> None:
        """Closes the traces."""
        with self._lock:
            for run in self._open.values():
                run.judge.close()
                run.trace.close()
            self._open.clear()


def _named(paths: Sequence[Path]) -> dict[str, Path]:
    """Shortest names that tell the paths apart: the folder's name, with its parents where two are alike."""
    names: dict[str, Path] = {}
    unique = list(dict.fromkeys(path.resolve() for path in paths))
    for path in unique:
        depth = 1
        while any(other != path and other.parts[-depth:] == path.parts[-depth:] for other in unique):
            depth += 1
        names["/".join(path.parts[-depth:])] = path
    return names


@dataclass(frozen=True)
class Context:
    """What a page is rendered from: the run, its chosen process, the address, and the other runs."""

    run: OpenRun
    src: Source
    view: View
    runs: RunStore
