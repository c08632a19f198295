from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ampscope.trace.reader import open_trace
from ampscope.trace.writer import LONGEST_FLUSH_SECONDS, TraceWriter

Errors = list[tuple[str, BaseException]]
MakeWriter = Callable[..., TraceWriter]


@pytest.fixture
def errors() -> Errors:
    return []


@pytest.fixture
def make(run_dir: Path, errors: Errors) -> Iterator[MakeWriter]:
    """Writers that flush only when they are told to, unless asked otherwise."""
    made: list[TraceWriter] = []

    def build(**options: object) -> TraceWriter:
        settings = {"flush_seconds": 3600.0, "on_error": lambda *e: errors.append(e), **options}
        made.append(TraceWriter(run_dir, **settings))  # type: ignore[arg-type]
        return made[-1]

    yield build
    for writer in made:
        writer.close()


def read(run_dir: Path, table: str = "steps", column: str = "step") -> list[object]:
    with open_trace(run_dir) as trace:
        return list(trace.sql(f"SELECT {column} FROM {table} ORDER BY proc, step")[column])


def test_what_is_added_is_read_after_close(make: MakeWriter, run_dir: Path, errors: Errors) -> None:
    writer = make()
    for step in range(10):
        writer.add("steps", [{"step": step, "loss": float("nan") if step else float("inf")}])
        writer.add("events", [{"step": step, "event": "note"}, {"step": step, "event": "budget"}])
    assert writer.close()
    assert read(run_dir) == list(range(10))
    assert len(read(run_dir, "events")) == 20
    with open_trace(run_dir) as trace:
        counts = trace.sql(
            "SELECT count(*) FILTER (isnan(loss)) nan, count(*) FILTER (isinf(loss)) inf FROM steps"
        )
        assert counts.to_dict("records") == [{"nan": 9, "inf": 1}]
    assert writer.rows_written == 30
    assert writer.parts == {"steps": 1, "events": 1}
    assert writer.thread_seconds > 0
    assert not errors


def test_flush_puts_on_disk_what_was_added_before(make: MakeWriter, run_dir: Path) -> None:
    writer = make()
    for step in range(3):
        writer.add("steps", [{"step": step}])
        assert writer.flush()
        assert read(run_dir) == list(range(step + 1))


def test_many_rows_start_a_flush_at_once(make: MakeWriter, run_dir: Path) -> None:
    writer = make(flush_rows=100)
    writer.add("steps", [{"step": i} for i in range(100)])
    wait_until(lambda: writer.rows_written == 100)
    assert len(read(run_dir)) == 100


def test_time_starts_a_flush(make: MakeWriter, run_dir: Path) -> None:
    writer = make(flush_seconds=0.01)
    writer.add("steps", [{"step": 0}])
    wait_until(lambda: writer.rows_written == 1)
    assert read(run_dir) == [0]


def wait_until(true: Callable[[], bool]) -> None:
    for _ in range(3000):
        if true():
            return
        time.sleep(0.01)
    raise AssertionError("nothing was written in 30 s")


def test_the_interval_grows_with_the_run_up_to_a_bound(make: MakeWriter) -> None:
    writer = make(flush_seconds=5.0)
    assert writer.interval == pytest.approx(0.5, abs=0.2), "a run of seconds leaves something as well"
    writer._started = time.monotonic() - 3.0
    assert writer.interval == pytest.approx(3.0, abs=0.2)
    writer._started = time.monotonic() - 20.0
    assert writer.interval == 5.0
    writer._started = time.monotonic()
    writer._started -= 1200
    assert writer.interval == pytest.approx(12.0, abs=0.1)
    writer._started -= 100_000
    assert writer.interval == LONGEST_FLUSH_SECONDS
    writer.flush_seconds = 300.0
    assert writer.interval == 300.0


def test_close_is_idempotent_and_later_rows_are_ignored(make: MakeWriter, run_dir: Path) -> None:
    writer = make()
    writer.add("steps", [{"step": 0}])
    assert writer.close()
    assert writer.close()
    writer.add("steps", [{"step": 1}])
    assert not writer.flush()
    assert read(run_dir) == [0]


def test_a_writer_that_got_nothing_writes_nothing(make: MakeWriter, run_dir: Path) -> None:
    writer = make()
    writer.add("steps", [])
    assert writer.close()
    assert os.listdir(run_dir) == ["run.json"]
    assert not [t for t in threading.enumerate() if t.name == "ampscope-writer"]


def test_unknown_keys_are_left_out_and_unknown_tables_are_told(
    make: MakeWriter, run_dir: Path, errors: Errors
) -> None:
    writer = make()
    writer.add("steps", [{"step": 0, "no_such_column": 1}])
    writer.add("no_such_table", [{"step": 0}])
    writer.add("steps", 5)  # type: ignore[arg-type]
    writer.close()
    assert read(run_dir) == [0]
    assert {type(e) for _, e in errors} == {KeyError, TypeError}


def test_strict_raises_for_unknown_tables_and_keys(make: MakeWriter) -> None:
    writer = make(strict=True)
    with pytest.raises(KeyError, match="table steps has no column no_such_column"):
        writer.add("steps", [{"step": 0, "no_such_column": 1}])
    with pytest.raises(KeyError, match="no_such_table"):
        writer.add("no_such_table", [{"step": 0}])


def test_a_value_that_does_not_fit_leaves_an_event(make: MakeWriter, run_dir: Path) -> None:
    writer = make(proc=2)
    writer.add("steps", [{"step": 0, "loss": "low", "proc": 2}])
    writer.close()
    assert read(run_dir) == [0]
    assert read(run_dir, "events", "message") == [
        "Values of steps.loss were left out: str does not fit the column."
    ]
    assert read(run_dir, "events", "proc") == [2]


def test_a_disk_that_refuses_is_told_once_and_costs_only_what_outgrows_the_bound(
    make: MakeWriter, run_dir: Path, errors: Errors
) -> None:
    (run_dir / "steps").touch()
    writer = make(flush_rows=100)
    for i in range(80):
        writer.add("steps", [{"step": 10 * i + k} for k in range(10)])
        if i % 7 == 0:
            assert not writer.flush()
    assert len(errors) == 1
    assert isinstance(errors[0][1], OSError)
    (run_dir / "steps").unlink()
    assert writer.flush()
    assert writer.rows_dropped > 0
    kept = read(run_dir)
    assert len(kept) == 800 - writer.rows_dropped
    assert 300 <= len(kept) <= 2 * writer.max_rows
    assert kept == list(range(800 - len(kept), 800)), "the oldest were dropped"
    message = f"{writer.rows_dropped} rows were dropped: the disk did not take them in time."
    assert read(run_dir, "events", "message") == [message]


def test_a_disk_that_hangs_holds_up_nobody(
    make: MakeWriter, run_dir: Path, errors: Errors, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging, go_on = threading.Event(), threading.Event()

    def fsync(fd: int) -> None:
        hanging.set()
        assert go_on.wait(60)

    monkeypatch.setattr(os, "fsync", fsync)
    writer = make(flush_rows=10, max_rows=30)
    writer.add("steps", [{"step": i} for i in range(10)])
    assert hanging.wait(60)
    for start in range(10, 100, 10):
        writer.add("steps", [{"step": i} for i in range(start, start + 10)])
    assert not writer.flush(timeout=0.01)
    assert not writer.close(timeout=0.01)
    assert [message for message, _ in errors] == ["The disk was too slow for the end of the trace"]
    go_on.set()
    assert writer.close()
    assert read(run_dir) == [*range(10), *range(70, 100)]
    assert writer.rows_dropped == 60


def test_two_processes_of_two_ranks_keep_apart(make: MakeWriter, run_dir: Path) -> None:
    for rank in range(2):
        for proc in range(2):
            writer = make(rank=rank, proc=proc)
            writer.add("steps", [{"step": 10 * rank + proc, "proc": proc}])
            writer.close()
    with open_trace(run_dir) as trace:
        got = trace.sql("SELECT rank, proc, step FROM steps ORDER BY ALL")
    assert got.to_numpy().tolist() == [[0, 0, 0], [0, 1, 1], [1, 0, 10], [1, 1, 11]]


def test_threads_lose_no_row(make: MakeWriter, run_dir: Path) -> None:
    writer = make(flush_rows=50, max_rows=10**6)

    def work(worker: int) -> None:
        for i in range(200):
            writer.add("steps", [{"step": 1000 * worker + i}])

    threads = [threading.Thread(target=work, args=(w,)) for w in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert writer.close()
    assert read(run_dir) == [1000 * w + i for w in range(6) for i in range(200)]


def test_rows_from_a_signal_handler_neither_deadlock_nor_get_lost(make: MakeWriter, run_dir: Path) -> None:
    writer = make(flush_rows=20, max_rows=10**6)
    from_handler = 0

    def handler(*_: object) -> None:
        nonlocal from_handler
        writer.add("steps", [{"step": -1}])
        from_handler += 1

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    try:
        added = 0
        while from_handler < 100:
            writer.add("steps", [{"step": added}])
            added += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert writer.close()
    assert read(run_dir) == [-1] * from_handler + list(range(added))


def test_signals_stay_with_the_threads_of_the_script(run_dir: Path) -> None:
    """A script may block a signal and wait for it: a thread that does not block it would take it, and die."""
    code = """
import os, signal, sys
from ampscope.trace.writer import TraceWriter
writer = TraceWriter(sys.argv[1])
writer.add("steps", [{"step": 0}])
assert not signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1}), "the mask of the script was changed"
os.kill(os.getpid(), signal.SIGUSR1)
assert signal.sigtimedwait({signal.SIGUSR1}, 10) is not None
"""
    done = subprocess.run([sys.executable, "-c", code, run_dir], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_forked_child_cannot_write(make: MakeWriter, run_dir: Path) -> None:
    writer = make()
    writer.add("steps", [{"step": 0}])
    child = os.fork()
    if child == 0:
        writer.add("steps", [{"step": 666}])
        quiet = not writer.flush() and not writer.close()
        os._exit(0 if quiet else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert os.listdir(run_dir) == ["run.json"]
    writer.add("steps", [{"step": 1}])
    assert writer.close()
    assert read(run_dir) == [0, 1]


SCRIPT = """
import os, sys, threading
from ampscope.trace.writer import TraceWriter
writer = TraceWriter(sys.argv[1])
writer.add("steps", [{{"step": i}} for i in range(50)])
{ending}
"""


@pytest.mark.parametrize(
    ("ending", "status", "rows"),
    [
        ("", 0, 50),
        ("sys.exit(3)", 3, 50),
        ("raise ValueError", 1, 50),
        ("import atexit; atexit.register(lambda: writer.add('steps', [{'step': 50}]))", 0, 51),
        ("os.fork(); sys.exit(0)", 0, 50),
        ("threading.Thread(target=lambda: writer.add('steps', [{'step': 50}])).start()", 0, 51),
        ("print(sorted({'pandas', 'duckdb', 'plotly', 'dash', 'pyarrow'} & set(sys.modules)))", 0, 50),
    ],
)
def test_the_end_of_a_process_loses_nothing(run_dir: Path, ending: str, status: int, rows: int) -> None:
    code = SCRIPT.format(ending=ending)
    done = subprocess.run([sys.executable, "-c", code, run_dir], capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    assert ("Traceback" in done.stderr) == (status == 1)
    assert done.stdout in ("", "[]\n")
    assert read(run_dir) == list(range(rows))


def test_a_process_that_first_adds_while_it_exits_writes_too(run_dir: Path) -> None:
    code = """
import atexit, sys
from ampscope.trace.writer import TraceWriter
writer = TraceWriter(sys.argv[1])
atexit.register(writer.close)
atexit.register(lambda: writer.add("steps", [{"step": 0}]))
"""
    done = subprocess.run([sys.executable, "-c", code, run_dir], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert read(run_dir) == [0]
