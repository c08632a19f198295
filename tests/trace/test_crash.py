"""Kills a recording process and opens what it left: every row that was on disk is there, once, and nothing else."""

from __future__ import annotations

import os
import random
import select
import signal
import sys
import time
from pathlib import Path

import pytest

from ampscope.trace.reader import open_trace
from ampscope.trace.records import ProcessInfo
from ampscope.trace.runinfo import claim_process, create_run, read_run
from ampscope.trace.writer import TraceWriter

MOMENTS = 40


def record_for_ever(run_dir: Path, acknowledge: int) -> None:
    """Rows 0, 1, 2, ... of two tables, flushed all the time; says on `acknowledge` how many are surely on disk."""
    proc = claim_process(run_dir, 0, ProcessInfo())
    writer = TraceWriter(run_dir, proc=proc, flush_seconds=0.001, flush_rows=7, max_rows=10**6)
    step = 0
    while True:
        for _ in range(random.randrange(1, 12)):
            writer.add("steps", [{"step": step}])
            writer.add("tensors", [{"step": step, "name": f"p{i}", "hist": [step] * i} for i in range(3)])
            step += 1
        if random.random() < 0.3 and writer.flush():
            os.write(acknowledge, step.to_bytes(8, "little"))


def start(run_dir: Path) -> tuple[int, int]:
    """(pid, read end of the pipe) of a forked child that records until it is killed."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            record_for_ever(run_dir, write)
        finally:
            os._exit(1)
    os.close(write)
    return child, read


def check(run_dir: Path, acknowledged: int) -> None:
    with open_trace(run_dir) as trace:
        assert trace.integrity.damaged == ()
        assert trace.integrity.missing == ()
        steps = [int(s) for s in trace.sql("SELECT step FROM steps ORDER BY step").step]
        tensors = trace.sql("SELECT step, name, hist FROM tensors ORDER BY step, name")
    assert steps == list(range(len(steps)))
    assert acknowledged <= len(steps)
    assert 3 * acknowledged <= len(tensors)
    for i, (step, name, hist) in enumerate(zip(tensors.step, tensors.name, tensors["hist"], strict=True)):
        assert (step, name, list(hist)) == (i // 3, f"p{i % 3}", [i // 3] * (i % 3))


@pytest.mark.parametrize("seed", range(MOMENTS))
def test_kill_9_at_a_random_moment(tmp_path: Path, seed: int) -> None:
    run_dir = tmp_path / "run"
    create_run(run_dir, ["train.py"], {})
    child, pipe = start(run_dir)
    try:
        assert select.select([pipe], [], [], 60)[0], "the child wrote nothing"
        time.sleep(random.Random(seed).random() * 0.1)
        assert [p.state for p in read_run(run_dir).processes] == ["live"]
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    acknowledged = 0
    while message := os.read(pipe, 8):
        acknowledged = int.from_bytes(message, "little")
    os.close(pipe)
    assert acknowledged > 0
    check(run_dir, acknowledged)
    assert [p.state for p in read_run(run_dir).processes] == ["cut_off"]


def test_a_kill_at_every_file_operation_of_a_flush(tmp_path: Path) -> None:
    """Also what random moments rarely meet: between writing, syncing, renaming and the record of the process."""
    for n in range(1, 100):
        run_dir = tmp_path / f"run{n}"
        create_run(run_dir, ["train.py"], {})
        survived = record_and_die(run_dir, n)
        with open_trace(run_dir) as trace:
            assert [d.path for d in trace.integrity.damaged if d.path.endswith(".parquet")] == []
            steps = [int(s) for s in trace.sql("SELECT step FROM steps ORDER BY step").step]
        assert steps == list(range(len(steps)))
        if survived:
            assert n > 8
            assert len(steps) == 20
            return
    raise AssertionError("the child never got through")


def record_and_die(run_dir: Path, n: int) -> bool:
    """Fork, record 20 rows in two flushes, die by SIGKILL before the n-th file operation in the run directory."""
    child = os.fork()
    if child == 0:
        seen = 0

        def watch(event: str, args: tuple[object, ...]) -> None:
            nonlocal seen
            if event in ("open", "os.rename", "os.mkdir") and str(args[0]).startswith(str(run_dir)):
                seen += 1
                if seen == n:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(watch)
        try:
            proc = claim_process(run_dir, 0, ProcessInfo())
            writer = TraceWriter(run_dir, proc=proc, flush_seconds=3600)
            for start in (0, 10):
                writer.add("steps", [{"step": s} for s in range(start, start + 10)])
                writer.flush()
            writer.close()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
