"""Traces built row by row, for what a training run on this machine cannot show. Tests only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ampscope.trace.records import DeviceInfo, ProcessInfo
from ampscope.trace.runinfo import claim_process, create_run, finish_process, finish_run
from ampscope.trace.writer import TraceWriter

Row = dict[str, Any]

H200 = DeviceInfo(name="NVIDIA H200", type="cuda", capability="9.0", memory=150 * 2**30)
V100 = DeviceInfo(name="Tesla V100", type="cuda", capability="7.0", memory=16 * 2**30)
P100 = DeviceInfo(name="Tesla P100", type="cuda", capability="6.0", memory=16 * 2**30)


def key(segment: int, *, opt: str | None = "SGD#0", phase: str = "other", step: int | None = None) -> Row:
    """The key columns of a row; the step is the segment unless it is given."""
    return {
        "step": segment if step is None else step, "segment": segment, "micro": 0, "proc": 0, "phase": phase,
        "opt": opt, "opt_step": segment,
    }  # fmt: skip


def step(segment: int, outcome: str = "stepped", **columns: Any) -> Row:
    """A row of steps."""
    made = {
        "outcome": outcome,
        "skipped": outcome == "skipped",
        "loss": 1.0,
        "n_backward": 1,
        "level": "pulse",
    }
    return {**key(segment), **made, **columns}


def call(seq: int, name: str, *, segment: int = 0, **columns: Any) -> Row:
    """A row of calls."""
    return {**key(segment), "seq": seq, "t": seq * 0.01, "call": name, "thread_main": True, **columns}


def scaler(segment: int, scale: float, after: float | None, found: bool = False, **columns: Any) -> Row:
    """A row of scaler."""
    made = {
        "scaler": "GradScaler#0",
        "scale": scale,
        "scale_after": after,
        "found_inf": found,
        "skipped": found,
    }
    return {**key(segment), **made, "growth_interval": 2000, "init_scale": 65536.0, **columns}


def op(
    segment: int, seq: int, name: str, dtype: str = "float32", *, phase: str = "forward", **columns: Any
) -> Row:
    """A row of ops with one input and one output of a dtype."""
    made = {
        "seq": seq,
        "op": f"aten::{name}",
        "in_dtypes": [dtype],
        "out_dtypes": [dtype],
        "out_shapes": ["8x8"],
    }
    return {**key(segment, phase=phase), **made, "device": "cpu", **columns}


def write(
    path: Path,
    tables: dict[str, list[Row]],
    *,
    bf16_native: bool = True,
    devices: tuple[DeviceInfo, ...] = (),
    finished: bool = True,
    ranks: int = 1,
) -> Path:
    """A run directory that holds these rows, once per rank."""
    run = path / "run"
    create_run(run, ["train.py"], {})
    faults: list[str] = []
    for rank in range(ranks):
        info = ProcessInfo(script="train.py", torch="2.13.0", bf16_native=bf16_native, devices=devices)
        proc = claim_process(run, rank, info)
        writer = TraceWriter(
            run, rank=rank, proc=proc, strict=True, on_error=lambda text, e: faults.append(f"{text}: {e!r}")
        )
        for table, rows in tables.items():
            writer.add(table, [dict(row) for row in rows])
        writer.close()
        if faults:
            raise AssertionError(faults)
        finish_process(run, rank, proc, writer.parts)
    if finished:
        finish_run(run, 0)
    return run
