"""Takes rows from the training process and turns them into Parquet parts on a background thread.

`add` never blocks, never raises and never touches a tensor or a device; the thread is the only one that
imports pyarrow. A crash loses at most the rows of the current flush interval; a fault of the disk loses rows
only when they outgrow `max_rows`, and the loss is written down.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import os
import signal
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ampscope.trace.schema import TABLES
from ampscope.trace.store import PartStore, Row

OnError = Callable[[str, BaseException], None]

LONGEST_FLUSH_SECONDS = 60.0
"""The flush interval grows as run time / 100 from `flush_seconds` up to this, so that a run of a day has some
1 500 parts per table instead of 17 000, and a run of an hour loses no more than 36 s."""


@contextlib.contextmanager
def _signals_blocked() -> Iterator[None]:
    """A thread started inside inherits the mask: signals to the process stay with the threads of the script,
    which may block them in its own and wait for them there."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    of_faults = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - of_faults)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


FIRST_FLUSH_SECONDS = 0.5


class _Waiter:
    """Somebody in `flush`, who is told whether all that he waited for is on disk."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.stored = False


class TraceWriter:
    """Writer of one process's rows.

    `flush_seconds` is the first flush interval, `flush_rows` the number of waiting rows that starts a flush
    at once. At most `max_rows` rows (default five flushes) wait for the thread, and as many, compressed, for
    a disk that refuses; beyond that the oldest are dropped, and an `events` row says how many.
    `on_error(message, exception)` is called on the writer's thread, once per kind of fault. `strict` makes
    unknown tables and keys raise KeyError in `add`; otherwise they are left out.

    Closes itself when the interpreter exits; with `at_exit` False its owner sees to that, because it has rows
    to add until the end: exit functions run in reverse order, and this one is registered at the first row.

    A forked child that inherits a writer cannot write with it. Rows belong to the writer once added.
    """

    def __init__(
        self,
        run_dir: str | Path,
        *,
        rank: int = 0,
        proc: int = 0,
        flush_seconds: float = 5.0,
        flush_rows: int = 20_000,
        max_rows: int | None = None,
        on_error: OnError | None = None,
        strict: bool = False,
        at_exit: bool = True,
    ) -> None:
        self.flush_seconds = flush_seconds
        self.flush_rows = flush_rows
        self._at_exit = at_exit
        self.max_rows = max_rows or 5 * flush_rows
        self.strict = strict
        self.rows_dropped = 0
        self.thread_seconds = 0.0
        """Processor time of the writer's thread."""
        self._on_error = on_error
        self._proc = proc
        self._store = PartStore(Path(run_dir), rank, proc, self._report)
        self._pid = os.getpid()
        self._started = time.monotonic()
        self._inbox: deque[Sequence[tuple[str, Row]]] = deque()
        self._inbox_rows = 0
        self._dropped_unsaid = 0
        # Reentrant, and held only for an append or a swap: a signal handler may add a row in the middle of an
        # add.
        self._lock = threading.RLock()
        # A raw lock as a bell: unlike Event.set, releasing it from a signal handler cannot deadlock.
        self._bell = _thread.allocate_lock()
        self._bell.acquire()
        self._start_once = _thread.allocate_lock()
        self._waiters: deque[_Waiter] = deque()
        self._thread: _thread.LockType | None = None
        self._ident = 0
        self._closing = False
        self._reported: set[object] = set()

    @property
    def interval(self) -> float:
        """The flush interval now, in seconds: what a crash at this moment can cost."""
        age = time.monotonic() - self._started
        if age < self.flush_seconds:
            # A script of a few seconds that ends by os._exit or a signal must leave something too.
            return min(self.flush_seconds, max(FIRST_FLUSH_SECONDS, age))
        return max(self.flush_seconds, min(LONGEST_FLUSH_SECONDS, age / 100))

    @property
    def parts(self) -> dict[str, int]:
        """Parts of this process so far, per table; `finish_process` keeps it, so that a lost part is
        noticed."""
        return dict(self._store.parts)

    @property
    def rows_written(self) -> int:
        return self._store.rows

    @property
    def bytes_written(self) -> int:
        return self._store.bytes

    def add(self, table: str, rows: Sequence[Row]) -> None:
        """Hand over `rows` of `table`; see the class for what happens to them."""
        try:
            mixed = [(table, row) for row in rows]
        except TypeError as e:
            self._report(type(e), "A row could not be taken", e)
        else:
            self.extend(mixed)

    def extend(self, rows: Sequence[tuple[str, Row]]) -> None:
        """Hand over rows, each with the name of its table; they and their sequence are the writer's from now on."""
        if self.strict:
            for table, row in rows:
                self._check(table, row)
        try:
            self._accept(rows)
        except Exception as e:
            self._report(type(e), "A row could not be taken", e)

    def flush(self, wait: bool = True, timeout: float = 30.0) -> bool:
        """Start writing what was added before; with `wait`, return when it is on disk, when the disk refused
        it, or after `timeout` seconds. True when all of it is on disk."""
        if self._thread is None or self._closing or not self._mine():
            return False
        waiter = _Waiter()
        self._waiters.append(waiter)
        self._ring()
        return wait and waiter.done.wait(timeout) and waiter.stored

    def close(self, timeout: float = 30.0) -> bool:
        """Write what is left and stop; later calls do nothing. False when the disk refused, or took longer
        than `timeout` seconds: the exit of the process does not wait for it."""
        if not self._mine():
            return False
        self._closing = True
        atexit.unregister(self.close)
        if self._thread is None:
            self._cycle()
        elif self._ident != threading.get_ident():
            self._ring()
            if not self._thread.acquire(timeout=timeout):
                late = TimeoutError(f"not done after {timeout:g} s")
                self._report("close", "The disk was too slow for the end of the trace", late)
                return False
            self._thread.release()
            if self._inbox:  # another thread added while the last flush ran
                self._cycle()
        return not self._store.waiting and not self._inbox

    def _mine(self) -> bool:
        return os.getpid() == self._pid

    def _check(self, table: str, row: Row) -> None:
        known = TABLES[table].column_names
        unknown = [key for key in row if key not in known]
        if unknown:
            raise KeyError(f"table {table} has no column {', '.join(unknown)}")

    def _accept(self, rows: Sequence[tuple[str, Row]]) -> None:
        if not rows or self._closing or not self._mine():
            return
        with self._lock:
            self._inbox.append(rows)
            self._inbox_rows += len(rows)
            while self._inbox_rows > self.max_rows and len(self._inbox) > 1:
                gone = len(self._inbox.popleft())
                self._inbox_rows -= gone
                self._drop(gone)
            full = self._inbox_rows >= self.flush_rows
            # Not `is None`: a signal handler may get here while the thread is being started.
            if self._start_once.acquire(blocking=False):
                self._start()
        if full:
            self._ring()

    def _drop(self, rows: int) -> None:
        with self._lock:
            self.rows_dropped += rows
            self._dropped_unsaid += rows

    def _start(self) -> None:
        if self._at_exit:
            atexit.register(self.close)
        # A raw thread: scripts that wait for every thread of `threading.enumerate()` must not wait for this one.
        # Late in the exit of an interpreter no thread can be started: `close` then writes by itself.
        done = _thread.allocate_lock()
        done.acquire()
        with _signals_blocked(), contextlib.suppress(RuntimeError):
            self._ident = _thread.start_new_thread(self._run_then, (done,))
            self._thread = done

    def _ring(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._bell.release()

    def _report(self, kind: object, message: str, error: BaseException) -> None:
        if kind in self._reported or self._on_error is None:
            return
        self._reported.add(kind)
        with contextlib.suppress(Exception):
            self._on_error(message, error)

    # What follows runs on the writer's thread.

    def _run_then(self, done: _thread.LockType) -> None:
        try:
            self._run()
        except BaseException as e:
            self._report("thread", "The thread of the trace writer ended early", e)
        finally:
            done.release()

    def _run(self) -> None:
        closing = False
        while not closing:
            self._bell.acquire(timeout=self.interval)
            closing = self._closing
            waiters = [self._waiters.popleft() for _ in range(len(self._waiters))]
            self._cycle()
            self.thread_seconds = time.thread_time()
            for waiter in waiters:
                waiter.stored = not self._store.waiting
                waiter.done.set()

    def _cycle(self) -> None:
        try:
            self._encode(self._drain())
            stored = self._store.store()
            if self._dropped_unsaid and (stored or self._closing):
                self._say_dropped()
            self._drop(self._store.drop_beyond(self.max_rows))
        except BaseException as e:
            self._report(type(e), "The trace writer met an error of its own", e)

    def _drain(self) -> dict[str, list[Row]]:
        with self._lock:
            inbox, self._inbox = self._inbox, deque()
            self._inbox_rows = 0
        by_table: defaultdict[str, list[Row]] = defaultdict(list)
        for rows in inbox:
            for table, row in rows:
                by_table[table].append(row if "proc" in row else {**row, "proc": self._proc})
        return by_table

    def _encode(self, by_table: dict[str, list[Row]]) -> None:
        events = by_table.pop("events", [])
        for table, rows in by_table.items():
            if table in TABLES:
                self._drop(self._store.encode(table, rows))
            else:
                self._report(KeyError, "A row could not be taken", KeyError(f"no table {table}"))
        events += [self._event(message) for message in self._store.new_misfits()]
        if events:
            self._drop(self._store.encode("events", events))

    def _say_dropped(self) -> None:
        n, self._dropped_unsaid = self._dropped_unsaid, 0
        self._store.encode(
            "events", [self._event(f"{n} rows were dropped: the disk did not take them in time.")]
        )
        self._store.store()

    def _event(self, message: str) -> Row:
        t = time.monotonic() - self._started
        where = {"t": t, "proc": self._proc, "event": "collector_error"}
        return {**where, "level": "error", "subject": "writer", "message": message}
