from __future__ import annotations

import fcntl
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ampscope.trace import compact as module
from ampscope.trace.compact import Compacted, compact
from ampscope.trace.reader import open_trace
from ampscope.trace.runinfo import finish_run

PutPart = Callable[..., Path]


def tensors(first: int, n: int = 5) -> list[dict[str, object]]:
    """Rows that are out of order by name and step, with everything that a merge could spoil."""
    rows: list[dict[str, object]] = [
        {
            "step": i,
            "name": random.Random(i).choice(["b", "a", "ü", None]),
            "role": "grad",
            "amax": [float("nan"), float("inf"), -0.0, None][i % 4],
            "hist": [[1, 2], [], None][i % 3],
            "scaled": [True, False, None][i % 3],
            "hist_lo": -127 + i % 5,
        }
        for i in range(first, first + n)
    ]
    random.Random(first).shuffle(rows)
    return rows


def content(run_dir: Path, table: str = "tensors") -> list[str]:
    with open_trace(run_dir) as trace:
        frame = trace.sql(f"SELECT * FROM {table} ORDER BY rank, proc, step")
        assert trace.integrity.sound
        return [repr(row) for row in frame.astype(object).to_numpy().tolist()]


def files(run_dir: Path) -> list[str]:
    return sorted(p.relative_to(run_dir).as_posix() for p in run_dir.rglob("part-*"))


@pytest.fixture
def finished(run_dir: Path, put_part: PutPart) -> Path:
    """Six parts of one stream, two of another rank, two of another process, and a single one."""
    for i in range(6):
        put_part("tensors", tensors(5 * i))
    for i in range(2):
        put_part("tensors", tensors(5 * i), rank=1)
        put_part("tensors", tensors(5 * i), proc=1)
    put_part("events", [{"t": 1.0, "message": "x"}])
    finish_run(run_dir, 0)
    return run_dir


def test_parts_are_merged_sorted_and_nothing_else_changes(finished: Path) -> None:
    before = content(finished)
    assert compact(finished) == Compacted(merged=10, written=3)
    assert files(finished) == [
        "events/rank=0/part-000000.parquet",
        "tensors/rank=0/part-000000-000005.parquet",
        "tensors/rank=0/part-p1-000000-000001.parquet",
        "tensors/rank=1/part-000000-000001.parquet",
    ]
    assert content(finished) == before
    merged = pq.ParquetFile(finished / "tensors/rank=0/part-000000-000005.parquet").read(
        ["role", "name", "step"]
    )
    keys = [(r["name"] is None, r["name"] or "", r["step"]) for r in merged.to_pylist()]
    assert keys == sorted(keys)
    assert compact(finished) == Compacted()


def test_a_live_run_is_left_alone(run_dir: Path, put_part: PutPart) -> None:
    for i in range(6):
        put_part("tensors", tensors(5 * i))
    before = files(run_dir)
    assert compact(run_dir) == Compacted(finished=False)
    assert files(run_dir) == before


def test_nothing_is_merged_across_a_damaged_or_a_missing_part(run_dir: Path, put_part: PutPart) -> None:
    paths = [put_part("tensors", tensors(5 * i)) for i in range(14)]
    finish_run(run_dir, 0)
    paths[4].write_bytes(b"damaged")
    paths[9].unlink()
    compact(run_dir)
    assert [f.rpartition("/")[2] for f in files(run_dir)] == [
        "part-000000-000003.parquet",
        "part-000004.parquet",
        "part-000005-000008.parquet",
        "part-000010-000013.parquet",
    ]
    with open_trace(run_dir) as trace:
        assert trace.rows("tensors") == 60
        assert [d.path for d in trace.integrity.damaged] == ["tensors/rank=0/part-000004.parquet"]
        assert trace.integrity.missing == ("tensors/rank=0/part-000009.parquet",)


def test_merged_parts_stay_within_their_bound(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TARGET_ROWS", 20)
    before = content(finished)
    compact(finished)
    assert "tensors/rank=0/part-000000-000003.parquet" in files(finished)
    assert content(finished) == before


def test_it_stops_in_time_and_goes_on_later(finished: Path) -> None:
    before = content(finished)
    assert compact(finished, seconds=-1) == Compacted(finished=False)
    assert content(finished) == before
    assert compact(finished).finished


def test_a_second_compaction_at_work_is_left_to_it(finished: Path) -> None:
    fd = os.open(finished, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    assert compact(finished) == Compacted(finished=False)
    os.close(fd)
    assert compact(finished).finished


def test_what_a_killed_writer_left_is_tidied_away(finished: Path) -> None:
    left = finished / "tensors" / "rank=0" / "part-000006.parquet.4711.tmp"
    other = finished / "tensors" / "rank=0" / "notes.tmp"
    for file in (left, other):
        file.write_bytes(b"half")
    compact(finished)
    assert not left.exists()
    assert other.exists()


@pytest.mark.slow
def test_a_kill_at_any_moment_loses_and_doubles_nothing(finished: Path, tmp_path: Path) -> None:
    """The child is killed at its n-th change of a file, for every n until it gets through."""
    before = content(finished)
    for n in range(1, 200):
        run_dir = tmp_path / f"copy{n}" / "run"
        shutil.copytree(finished, run_dir)
        survived = _compact_and_die(run_dir, n)
        assert content(run_dir) == before, f"killed at file operation {n}"
        compact(run_dir)
        with open_trace(run_dir) as trace:
            assert trace.rows("tensors") == len(before)
        assert len(files(run_dir)) == 4
        assert not list(run_dir.rglob("*.tmp"))
        shutil.rmtree(run_dir)
        if survived:
            assert n > 15, "the operations are seen"
            return
    raise AssertionError("the child never got through")


def _compact_and_die(run_dir: Path, n: int) -> bool:
    """Fork, compact, die by SIGKILL before the n-th operation that changes a file. True when there were fewer."""
    import signal
    import sys

    child = os.fork()
    if child == 0:
        seen = 0

        def watch(event: str, args: tuple[object, ...]) -> None:
            nonlocal seen
            if event in ("os.rename", "os.remove") or (
                event == "open" and str(args[0]).startswith(str(run_dir))
            ):
                seen += 1
                if seen == n:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(watch)
        try:
            compact(run_dir)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
