"""The exception that ends a run, recorded without standing in its way: the hooks that were there before are called,
and frames of ampscope are left out of the traceback that they print.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import traceback
from types import TracebackType
from typing import Any

from ampscope.hooks.collector import Collector, shortened
from ampscope.hooks.tracebacks import clean, is_ours


class Exceptions(Collector):
    """Chains `sys.excepthook` and `threading.excepthook`."""

    name = "exceptions"

    def __init__(self, session: Any) -> None:
        super().__init__(session)
        self._previous: Any = None
        self._previous_thread: Any = None

    def install(self) -> None:
        self._previous, sys.excepthook = sys.excepthook, self._hook
        self._previous_thread, threading.excepthook = threading.excepthook, self._thread_hook

    def remove(self) -> None:
        # == because each access of a bound method makes a new object.
        if sys.excepthook == self._hook:
            sys.excepthook = self._previous
        if threading.excepthook == self._thread_hook:
            threading.excepthook = self._previous_thread
        super().remove()

    def _hook(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        self.guarded(self.record)(error)
        with contextlib.suppress(Exception):
            trace = clean(error, trace)
        self._previous(kind, error, trace)

    def _thread_hook(self, args: Any) -> None:
        if args.exc_value is not None:
            self.guarded(self.record)(args.exc_value)
            with contextlib.suppress(Exception):
                trace = clean(args.exc_value, args.exc_traceback)
                args = threading.ExceptHookArgs((args.exc_type, args.exc_value, trace, args.thread))
        self._previous_thread(args)

    def record(self, error: BaseException) -> None:
        """One `exception` event, at the user's innermost line."""
        where = _user_line(error)
        self.session.emit(
            "events",
            phase="other",
            t=self.session.clock.now(),
            event="exception",
            level="error",
            subject=type(error).__name__,
            message=shortened(str(error), 2000),
            traceback="".join(traceback.format_exception(type(error), error, error.__traceback__, limit=-40)),
            file=where[0],
            line=where[1],
            function=where[2],
        )
        self.session.failed = error


def _user_line(error: BaseException) -> tuple[str | None, int | None, str | None]:
    """The innermost frame that is neither torch's nor ours nor an installed package's."""
    found: tuple[str | None, int | None, str | None] = (None, None, None)
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        name = code.co_filename
        library = f"{os.sep}site-packages{os.sep}" in name or name.startswith("<frozen")
        if not library and not is_ours(code):
            found = (name, trace.tb_lineno, code.co_name)
        trace = trace.tb_next
    return found
