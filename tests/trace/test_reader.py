from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ampscope.errors import AmpscopeError
from ampscope.trace import database
from ampscope.trace.compact import compact
from ampscope.trace.integrity import check_parts
from ampscope.trace.reader import Trace, open_trace
from ampscope.trace.runinfo import create_run, finish_run, point_latest
from ampscope.trace.writer import TraceWriter

PutPart = Callable[..., Path]


def steps(first: int, n: int = 10) -> list[dict[str, object]]:
    return [{"step": i, "loss": 1.0 / (i + 1)} for i in range(first, first + n)]


def read(trace: Trace) -> list[int]:
    return [int(x) for x in trace.sql("SELECT step FROM steps ORDER BY step").step]


def test_a_trace_from_any_path_to_it(run_dir: Path, put_part: PutPart) -> None:
    part = put_part("steps", steps(0))
    point_latest(run_dir)
    for path in (run_dir, str(run_dir), part, run_dir.parent / "latest", run_dir.parent):
        with open_trace(path) as trace:
            assert trace.path == run_dir
            assert read(trace) == list(range(10))
    with open_trace(root=run_dir.parent) as trace:
        assert trace.path == run_dir


def test_rows_and_has_count_without_a_query(run_dir: Path, put_part: PutPart) -> None:
    put_part("steps", steps(0))
    put_part("steps", steps(10), rank=1)
    with open_trace(run_dir) as trace:
        assert (trace.rows("steps"), trace.has("steps")) == (20, True)
        assert (trace.rows("ops"), trace.has("ops")) == (0, False)
        with pytest.raises(KeyError):
            trace.rows("no_such_table")


def test_an_empty_run_opens(run_dir: Path) -> None:
    with open_trace(run_dir) as trace:
        assert trace.integrity.parts == 0
        assert trace.sql("SELECT count(*) n, max(step) s FROM steps").n[0] == 0
        assert trace.info.state == "live"


def test_a_live_run_is_refreshed(run_dir: Path, put_part: PutPart) -> None:
    put_part("steps", steps(0))
    with open_trace(run_dir) as trace:
        assert not trace.refresh()
        put_part("steps", steps(10))
        assert read(trace) == list(range(10))
        assert trace.refresh()
        assert read(trace) == list(range(20))
        assert trace.rows("steps") == 20
        finish_run(run_dir, 0)
        assert not trace.refresh(), "the same parts"
        assert trace.info.state == "complete"


def test_a_closed_trace_says_so(run_dir: Path) -> None:
    trace = open_trace(run_dir)
    trace.close()
    trace.close()
    for use in (lambda: trace.sql("SELECT 1"), trace.refresh):
        with pytest.raises(AmpscopeError, match="was closed"):
            use()


def test_a_wrong_query_is_duckdbs_error(run_dir: Path) -> None:
    with open_trace(run_dir) as trace:
        with pytest.raises(duckdb.BinderException, match="no_such_column"):
            trace.sql("SELECT no_such_column FROM steps")
        assert read(trace) == []


def test_damage_anywhere_in_a_part_costs_that_part_only(run_dir: Path, put_part: PutPart) -> None:
    parts = [put_part("steps", steps(10 * i)) for i in range(3)]
    whole = parts[1].read_bytes()
    kept = [*range(10), *range(20, 30)]

    @settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, len(whole) - 1), st.integers(1, 255), st.booleans())
    def check(at: int, flip: int, truncate: bool) -> None:
        damaged = whole[:at] if truncate else whole[:at] + bytes([whole[at] ^ flip]) + whole[at + 1 :]
        parts[1].write_bytes(damaged)
        with open_trace(run_dir) as trace:
            assert [d.path for d in trace.integrity.damaged] == ["steps/rank=0/part-000001.parquet"]
            assert read(trace) == kept
            assert trace.rows("steps") == 20

    check()


@pytest.fixture
def from_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every query reads the files, as those over large tables do."""
    monkeypatch.setattr(database, "SMALL", -1)


def test_a_part_that_goes_bad_while_the_trace_is_open_is_left_out(
    run_dir: Path, put_part: PutPart, from_files: None
) -> None:
    put_part("steps", steps(0))
    bad = put_part("steps", steps(10))
    with open_trace(run_dir) as trace:
        assert len(read(trace)) == 20
        bad.write_bytes(b"PAR1 no more")
        assert read(trace) == list(range(10))
        assert trace.integrity.damaged[0].path == "steps/rank=0/part-000001.parquet"


def test_a_removed_part_is_named_and_the_rest_is_read(
    run_dir: Path, put_part: PutPart, from_files: None
) -> None:
    gone = put_part("steps", steps(0))
    put_part("steps", steps(10))
    with open_trace(run_dir) as trace:
        gone.unlink()
        assert read(trace) == list(range(10, 20))
        assert trace.integrity.missing == ("steps/rank=0/part-000000.parquet",)


def test_a_small_table_is_read_once(run_dir: Path, put_part: PutPart) -> None:
    gone = put_part("steps", steps(0))
    with open_trace(run_dir) as trace:
        gone.unlink()
        assert read(trace) == list(range(10))
        assert trace.refresh()
        assert read(trace) == []


def test_a_part_that_goes_bad_while_the_trace_opens(
    run_dir: Path, put_part: PutPart, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_part("steps", steps(0))
    bad = put_part("steps", steps(10))

    def late(*args: object) -> object:
        found = check_parts(*args)  # type: ignore[arg-type]
        bad.write_bytes(b"PAR1 no more")
        return found

    monkeypatch.setattr("ampscope.trace.reader.check_parts", late)
    with open_trace(run_dir) as trace:
        assert read(trace) == list(range(10))


def test_a_lost_run_record_still_leaves_the_rows(run_dir: Path, put_part: PutPart) -> None:
    put_part("steps", steps(0))
    (run_dir / "run.json").write_text("{not json")
    with open_trace(run_dir) as trace:
        assert read(trace) == list(range(10))
        assert trace.info.command == ()
        assert [d.path for d in trace.integrity.damaged] == ["run.json"]


def test_a_newer_minor_is_read_and_a_newer_major_refused(run_dir: Path, put_part: PutPart) -> None:
    put_part("steps", steps(0))
    (run_dir / "auras" / "rank=0").mkdir(parents=True)
    (run_dir / "auras" / "rank=0" / "part-000000.parquet").write_bytes(b"a table of the future")
    raw = json.loads((run_dir / "run.json").read_text())
    for version, opens in (([1, 99], True), ([2, 0], False)):
        (run_dir / "run.json").write_text(json.dumps({**raw, "schema": version, "novelty": {}}))
        if opens:
            with open_trace(run_dir) as trace:
                assert read(trace) == list(range(10))
                assert trace.integrity.sound
        else:
            with pytest.raises(AmpscopeError, match=re.escape("trace schema 2.0")):
                open_trace(run_dir)


def test_threads_read_while_parts_come_and_are_merged(tmp_path: Path) -> None:
    """Every answer is one of the states that the run went through; none is an error."""
    from ampscope.trace.store import PartStore

    run_dir = tmp_path / "run"
    create_run(run_dir, ["train.py"], {})
    finish_run(run_dir, 0)
    store = PartStore(run_dir, 0, 0, lambda *_: None)

    def put() -> None:
        store.encode("steps", steps(store.rows))
        store.store()

    put()
    trace, done = open_trace(run_dir), threading.Event()
    seen: list[list[int]] = []
    faults: list[BaseException] = []

    def work() -> None:
        try:
            while not done.is_set():
                seen.append(read(trace))
        except BaseException as e:
            faults.append(e)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        for _ in range(5):
            put()
            trace.refresh()
        assert compact(run_dir).written == 1
    done.set()
    for thread in threads:
        thread.join()
    trace.refresh()
    assert not faults
    assert read(trace) == list(range(160))
    assert seen
    assert all(got == list(range(len(got))) and len(got) % 10 == 0 for got in seen)
    trace.close()


@pytest.fixture(autouse=True)
def no_threads_left() -> Iterator[None]:
    before = set(threading.enumerate())  # a dashboard of other tests may be served by this process
    yield
    assert not [t for t in threading.enumerate() if t not in before]


def test_a_filter_on_nan_finds_the_rows_that_hold_one(tmp_path: Path) -> None:
    run = tmp_path / "run"
    create_run(run, ["train.py"], {})
    writer = TraceWriter(run)
    writer.add("steps", [{"step": i, "loss": float("nan") if i == 7 else 1.0} for i in range(20)])
    writer.close()
    finish_run(run, 0)
    with open_trace(run) as trace:
        assert trace.sql("SELECT step FROM steps WHERE isnan(loss)")["step"].tolist() == [7]
        assert trace.sql("SELECT step FROM steps WHERE NOT (loss < 2.0)")["step"].tolist() == [7]
