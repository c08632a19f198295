"""The way of rows from the session to the trace writer. Holds them back until the process shows that it trains,
so that data-loader workers, launchers and helper processes leave no files.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque

from ampscope.hooks.clock import Row
from ampscope.hooks.environment import process_info
from ampscope.hooks.say import say
from ampscope.hooks.settings import Settings
from ampscope.hooks.source import user_files
from ampscope.hooks.sources import source_hashes
from ampscope.trace.runinfo import claim_process, finish_process
from ampscope.trace.writer import TraceWriter

BUFFER_ROWS = 20_000
"""Rows kept before activation; older ones are dropped."""


class Sink:
    """`push` accepts stamped rows at any time; `activate` opens the writer."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.rank = int(os.environ.get("RANK", "0") or 0)
        self.proc = 0
        self.active = False
        self._writer: TraceWriter | None = None
        self._early: deque[tuple[str, Row]] = deque(maxlen=BUFFER_ROWS)
        self._closed = False
        self._began = time.time()
        self._changing = threading.RLock()
        """Threads that train at the same time open one writer, and push no row past it."""

    def activate(self) -> None:
        """Claim a process number and open the writer. Idempotent."""
        with self._changing:
            if not self.active and not self._closed:
                self._activate()

    def _activate(self) -> None:
        self.proc = claim_process(self.settings.run_dir, self.rank, process_info(self.rank))
        self._writer = TraceWriter(
            self.settings.run_dir,
            rank=self.rank,
            proc=self.proc,
            flush_seconds=self.settings.flush_seconds,
            on_error=self._report,
            at_exit=False,
        )
        self.active = True
        early = list(self._early)
        self._early.clear()
        self.push(early)

    def push(self, rows: list[tuple[str, Row]]) -> None:
        with self._changing:
            if self._writer is None:
                self._early.extend(rows)
                return
        self._writer.extend(rows)

    @property
    def writer_seconds(self) -> float:
        """Processor time of the writer's thread so far."""
        return 0.0 if self._writer is None else self._writer.thread_seconds

    def flush(self) -> None:
        """Write what was pushed and wait until it is on disk."""
        if self._writer is not None:
            self._writer.flush(wait=True)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._writer is not None:
            self._writer.close()
            sources = source_hashes(user_files(), self._began)
            finish_process(self.settings.run_dir, self.rank, self.proc, self._writer.parts, sources)

    def _report(self, message: str, error: BaseException) -> None:
        say(self.settings, f"{message} ({error}); training goes on.")
