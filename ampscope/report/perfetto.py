"""A run as a Chrome trace event file, which ui.perfetto.dev opens: steps, phases, modules, kernels and counters.

Starts of steps are measured. Within a step only durations were recorded: phases, modules and kernels are laid end
to end in their order, and each event says so.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, TextIO

from ampscope.report.query import Row, TraceView
from ampscope.report.rows import pieces

Event = dict[str, Any]

STEPS, PHASES, MODULES, KERNELS, EVENTS = 1, 2, 3, 4, 5
TRACKS = {
    STEPS: "steps",
    PHASES: "phases",
    MODULES: "modules (forward)",
    KERNELS: "ops and kernels",
    EVENTS: "events",
}
PHASE_COLUMNS = (
    ("data", "data_s"),
    ("forward", "forward_s"),
    ("backward", "backward_s"),
    ("unscale and clip", "unscale_s"),
    ("optimizer", "optimizer_s"),
)
LAID_OUT = "duration measured, start not recorded: laid end to end"
Starts = dict[tuple[int, int, int], tuple[float, float]]
"""(rank, proc, segment) → start of the step and start of its forward, in microseconds."""


def write(trace: TraceView, out: TextIO) -> int:
    """Write the trace events of every process to `out`; returns how many."""
    out.write('{"displayTimeUnit": "ms", "traceEvents": [')
    count = 0
    for event in _events(trace):
        out.write(",\n" if count else "\n")
        out.write(json.dumps(event, allow_nan=False))
        count += 1
    out.write("\n]}\n")
    return count


def _events(trace: TraceView) -> Iterator[Event]:
    starts: Starts = {}
    seen: set[tuple[int, int]] = set()
    for rows in pieces(trace, "steps"):
        for row in rows:
            if row["t_start"] is None:
                continue
            who = (row["rank"], row["proc"] or 0)
            if who not in seen:
                seen.add(who)
                yield from _names(*who)
            yield from _step(row, starts)
    yield from _modules(trace, starts)
    yield from _kernels(trace, starts)
    yield from _marks(trace)


def _pid(rank: int, proc: int | None) -> int:
    return 1 + 1000 * rank + (proc or 0)


def _names(rank: int, proc: int) -> Iterator[Event]:
    pid = _pid(rank, proc)
    yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": f"rank {rank} process {proc}"}}
    for tid, name in TRACKS.items():
        yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}
        yield {"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid, "args": {"sort_index": tid}}


def _step(row: Row, starts: Starts) -> Iterator[Event]:
    start, whole = 1e6 * row["t_start"], _micro(row["duration_s"])
    pid = _pid(row["rank"], row["proc"])
    told = ("step", "opt", "opt_step", "outcome", "loss", "lr", "scale", "level", "autocast_dtype")
    name = f"step {row['step']}" + (" (skipped)" if row["skipped"] else "")
    yield _slice(pid, STEPS, name, start, whole, {key: _safe(row[key]) for key in told})
    at = start
    forward = start
    for phase, column in PHASE_COLUMNS:
        length = _micro(row[column])
        if phase == "forward":
            forward = at
        if length:
            yield _slice(pid, PHASES, phase, at, length, {"note": LAID_OUT})
        at += length
    starts[row["rank"], row["proc"] or 0, row["segment"]] = (start, forward)
    for counter in ("scale", "loss", "lr", "host_rss", "device_allocated"):
        value = row[counter]
        if value is not None and math.isfinite(value):
            label = {"scale": "loss scale"}.get(counter, counter)
            yield {"ph": "C", "name": label, "pid": pid, "ts": start, "args": {label: value}}
    if row["skipped"]:
        yield _instant(pid, f"skipped step {row['step']}", start + whole, {"scale": _safe(row["scale"])})
    if row["loss"] is not None and not math.isfinite(row["loss"]):
        yield _instant(pid, f"loss is {row['loss']}", start + whole, {"step": row["step"]})


def _modules(trace: TraceView, starts: Starts) -> Iterator[Event]:
    at: defaultdict[tuple[int, int, int], float] = defaultdict(float)
    condition = "NOT coalesce(is_root, false) AND forward_s IS NOT NULL"
    rows = (row for piece in pieces(trace, "modules", condition) for row in piece)
    for row in sorted(rows, key=lambda r: (r["rank"], r["proc"] or 0, r["segment"], r["order"] or 0)):
        key = (row["rank"], row["proc"] or 0, row["segment"])
        if key not in starts:
            continue
        length = _micro(row["forward_s"])
        detail = {
            "calls": row["calls"],
            "class": row["class_name"],
            "out": row["out_dtypes"],
            "note": LAID_OUT,
        }
        yield _slice(_pid(*key[:2]), MODULES, row["name"] or "?", starts[key][1] + at[key], length, detail)
        at[key] += length


def _kernels(trace: TraceView, starts: Starts) -> Iterator[Event]:
    at: defaultdict[tuple[int, int, int], float] = defaultdict(float)
    rows = (row for piece in pieces(trace, "kernels") for row in piece)
    for row in sorted(
        rows, key=lambda r: (r["rank"], r["proc"] or 0, r["segment"], -_length(r), r["name"] or "")
    ):
        key = (row["rank"], row["proc"] or 0, row["segment"])
        length = _length(row)
        if key not in starts or not length:
            continue
        detail = {
            "calls": row["calls"],
            "kind": row["kind"],
            "tensor_core": row["tensor_core"],
            "note": LAID_OUT,
        }
        yield _slice(_pid(*key[:2]), KERNELS, row["name"] or "?", starts[key][0] + at[key], length, detail)
        at[key] += length


def _length(row: Row) -> float:
    """Device time of a kernel, host time of an op: both without children, in microseconds."""
    return _micro(row["self_device_s"] if row["kind"] == "kernel" else row["self_host_s"])


def _marks(trace: TraceView) -> Iterator[Event]:
    for rows in pieces(trace, "events", "t IS NOT NULL"):
        for row in rows:
            pid = _pid(row["rank"], row["proc"])
            detail = {"message": row["message"], "subject": row["subject"], "level": row["level"]}
            yield _instant(pid, row["event"] or "event", 1e6 * row["t"], detail)


def _slice(pid: int, tid: int, name: str, start: float, length: float, args: Event) -> Event:
    return {
        "ph": "X",
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": round(start, 3),
        "dur": round(length, 3),
        "args": {key: value for key, value in args.items() if value is not None},
    }


def _instant(pid: int, name: str, at: float, args: Event) -> Event:
    shown = {key: value for key, value in args.items() if value is not None}
    return {"ph": "i", "s": "p", "name": name, "pid": pid, "tid": EVENTS, "ts": round(at, 3), "args": shown}


def _micro(seconds: float | None) -> float:
    return 1e6 * seconds if seconds is not None and math.isfinite(seconds) and seconds > 0 else 0.0


def _safe(value: object) -> object:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
