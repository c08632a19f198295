"""The diagnosis of a run, made in a thread of its own: no request has to wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ampscope.errors import AmpscopeError

if TYPE_CHECKING:
    import pandas as pd

    from ampscope.diagnose.diagnosis import Diagnosis
    from ampscope.trace.integrity import Integrity
    from ampscope.trace.reader import Trace
    from ampscope.trace.records import RunInfo


class Judge:
    """Diagnoses one run. Safe to use from several threads; `close` before the interpreter ends.

    `pause` is called before each query of the diagnosis: it may wait, to let others go first.
    """

    def __init__(self, trace: Trace, pause: Callable[[], None] = lambda: None) -> None:
        self._trace = _Polite(trace, pause)
        self._changed = threading.Condition()
        self._known: Diagnosis | None = None
        self._error: Exception | None = None
        self._age = 0
        self._thread: threading.Thread | None = None

    @property
    def known(self) -> Diagnosis | None:
        """The diagnosis, if it was made since the last `forget`."""
        return self._known

    @property
    def settled(self) -> bool:
        """Whether what is known is of the run as it is now: False while a newer diagnosis is being made."""
        with self._changed:
            return self._thread is None and (self._known or self._error) is not None

    def forget(self) -> None:
        """The run has grown: what is known holds no longer."""
        with self._changed:
            self._known = self._error = None
            self._age += 1

    def wait(self, seconds: float | None = None) -> Diagnosis | None:
        """Begins the diagnosis where none is known; None when it is not there after `seconds` (None: however long
        it takes). Raises what diagnosing raised."""
        with self._changed:
            if self._thread is None and not self._there():
                self._thread = threading.Thread(target=self._work, name="ampscope-judge", daemon=True)
                self._thread.start()
            self._changed.wait_for(self._there, seconds)
            if self._error is not None:
                raise self._error
            return self._known

    def close(self) -> None:
        """Ends a diagnosis under way after its current query, and waits for that. Close the trace afterwards: it
        cannot be closed under a query."""
        self._trace.ended = True
        thread = self._thread
        if thread is not None:
            thread.join()

    def _there(self) -> bool:
        return self._known is not None or self._error is not None

    def _work(self) -> None:
        while True:
            with self._changed:
                age = self._age
            found, error = self._diagnose()
            with self._changed:
                # A live run may grow faster than it is diagnosed: then the newest there is is shown meanwhile.
                self._known, self._error = found, error
                if age == self._age:
                    self._thread = None
                self._changed.notify_all()
                if self._thread is None:
                    return

    def _diagnose(self) -> tuple[Diagnosis | None, Exception | None]:
        from ampscope.diagnose import diagnose
        from ampscope.diagnose.silence import read_silence

        try:
            return diagnose(self._trace, read_silence(Path.cwd())), None
        except Exception as error:
            return None, error


class _Polite:
    """A trace whose queries wait until nobody else has to."""

    def __init__(self, trace: Trace, pause: Callable[[], None]) -> None:
        self._trace = trace
        self._pause = pause
        self.ended = False

    @property
    def info(self) -> RunInfo:
        return self._trace.info

    @property
    def integrity(self) -> Integrity:
        return self._trace.integrity

    def sql(self, query: str, params: Sequence[Any] | None = None) -> pd.DataFrame:
        self._pause()
        if self.ended:
            raise AmpscopeError("The dashboard was closed.")
        return self._trace.sql(query, params)
