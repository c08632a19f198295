from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from ampscope.trace.reader import open_trace
from ampscope.trace.store import PartStore

Reports = list[tuple[object, str, BaseException]]


@pytest.fixture
def reports() -> Reports:
    return []


@pytest.fixture
def store(run_dir: Path, reports: Reports) -> PartStore:
    return PartStore(run_dir, 0, 0, lambda *report: reports.append(report))


def steps(first: int, n: int) -> list[dict[str, object]]:
    return [{"step": i} for i in range(first, first + n)]


def read_steps(run_dir: Path) -> list[int]:
    with open_trace(run_dir) as trace:
        return [int(x) for x in trace.sql("SELECT step FROM steps ORDER BY step").step]


def test_parts_are_numbered_per_table(store: PartStore, run_dir: Path, reports: Reports) -> None:
    for table, n in (("steps", 3), ("events", 2), ("steps", 1)):
        store.encode(table, steps(0, n))
    assert store.rows_waiting == 6
    assert store.store() == 6
    assert store.parts == {"steps": 2, "events": 1}
    assert (store.rows, store.rows_waiting, len(store.waiting)) == (6, 0, 0)
    files = sorted(p.relative_to(run_dir).as_posix() for p in run_dir.glob("*/rank=0/*"))
    assert files == [
        "events/rank=0/part-000000.parquet",
        "steps/rank=0/part-000000.parquet",
        "steps/rank=0/part-000001.parquet",
    ]
    assert store.bytes == sum((run_dir / f).stat().st_size for f in files)
    assert not reports


def test_a_second_store_of_the_same_process_overwrites_nothing(run_dir: Path) -> None:
    for first in (0, 10):
        again = PartStore(run_dir, 0, 0, lambda *_: None)
        again.encode("steps", steps(first, 10))
        again.store()
    assert read_steps(run_dir) == list(range(20))


def test_a_file_in_the_way_costs_nothing_once_it_is_gone(
    store: PartStore, run_dir: Path, reports: Reports
) -> None:
    (run_dir / "steps").touch()
    store.encode("steps", steps(0, 5))
    store.encode("events", [{"t": 0.0}])
    assert store.store() == 1, "the other table is written"
    store.encode("steps", steps(5, 5))
    assert store.store() == 0
    assert store.rows_waiting == 10
    assert {kind for kind, _, _ in reports} <= {errno.EEXIST, errno.ENOTDIR}
    (run_dir / "steps").unlink()
    assert store.store() == 10
    assert read_steps(run_dir) == list(range(10))


def test_a_removed_run_directory_is_not_made_again(store: PartStore, run_dir: Path, reports: Reports) -> None:
    store.encode("steps", steps(0, 2))
    store.store()
    moved = run_dir.with_name("moved")
    run_dir.rename(moved)
    store.encode("steps", steps(2, 2))
    assert store.store() == 0
    assert not run_dir.exists()
    assert [kind for kind, _, _ in reports] == [errno.ENOENT]
    moved.rename(run_dir)
    assert store.store() == 2
    assert read_steps(run_dir) == [0, 1, 2, 3]


def test_a_removed_table_directory_is_made_again(store: PartStore, run_dir: Path) -> None:
    store.encode("steps", steps(0, 2))
    store.store()
    shutil.rmtree(run_dir / "steps")
    store.encode("steps", steps(2, 2))
    assert store.store() == 2
    assert read_steps(run_dir) == [2, 3]
    with open_trace(run_dir) as trace:
        assert trace.integrity.missing == ("steps/rank=0/part-000000.parquet",)


def test_a_full_disk_leaves_no_half_part(run_dir: Path) -> None:
    """The limit on file sizes makes write(2) fail in the middle of a part, as a full disk does."""
    child = os.fork()
    if child == 0:
        os._exit(_write_past_the_limit(run_dir))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert read_steps(run_dir) == list(range(3000))


def _write_past_the_limit(run_dir: Path) -> int:
    import resource

    reports: Reports = []
    store = PartStore(run_dir, 0, 0, lambda *report: reports.append(report))
    store.encode("steps", steps(0, 3000))
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
    refused = store.store() == 0 and [kind for kind, _, _ in reports] == [errno.EFBIG]
    empty = not list((run_dir / "steps" / "rank=0").iterdir())
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    return 0 if refused and empty and store.store() == 3000 else 1


def test_the_oldest_waiting_parts_are_dropped_first(store: PartStore, run_dir: Path) -> None:
    for first in range(0, 50, 10):
        store.encode("steps", steps(first, 10))
    assert store.drop_beyond(50) == 0
    assert store.drop_beyond(25) == 30
    store.store()
    assert read_steps(run_dir) == list(range(30, 50))


def test_a_column_that_misfits_is_told_once(store: PartStore) -> None:
    store.encode("steps", [{"step": "x"}, {"step": "y"}])
    assert store.new_misfits() == ["Values of steps.step were left out: str does not fit the column."]
    store.encode("steps", [{"step": "z"}])
    assert store.new_misfits() == []


def test_rows_that_cannot_be_encoded_are_counted_and_told(store: PartStore, reports: Reports) -> None:
    assert store.encode("steps", [{"step": 1}, None]) == 2  # type: ignore[list-item]
    assert store.rows_waiting == 0
    assert reports[0][1] == "2 rows of steps could not be encoded and are lost"
