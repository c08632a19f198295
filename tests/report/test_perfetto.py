from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from ampscope.report import perfetto
from ampscope.trace.reader import Trace, open_trace
from ampscope.trace.records import RunInfo
from ampscope.trace.runinfo import write_run
from ampscope.trace.writer import TraceWriter

KEY: dict[str, object] = {"step": 0, "segment": 0, "proc": 0}


def events(trace: Trace) -> list[dict[str, Any]]:
    out = io.StringIO()
    count = perfetto.write(trace, out)
    found: list[dict[str, Any]] = json.loads(out.getvalue(), parse_constant=lambda name: 1 / 0)["traceEvents"]
    assert len(found) == count
    return found


def test_steps_phases_and_counters(trace: Trace) -> None:
    found = events(trace)
    steps = [e for e in found if e["ph"] == "X" and e["tid"] == perfetto.STEPS]
    assert len(steps) == 120
    assert (steps[3]["name"], steps[3]["ts"], steps[3]["dur"]) == ("step 3", 30_000.0, 10_000.0)
    assert steps[60]["name"] == "step 60 (skipped)"
    phases = [e for e in found if e["ph"] == "X" and e["tid"] == perfetto.PHASES and e["ts"] < 10_000]
    assert [p["name"] for p in phases] == [name for name, _ in perfetto.PHASE_COLUMNS]
    assert [p["ts"] for p in phases] == [0.0, 1000.0, 4000.0, 8000.0, 8500.0]
    scales = [e["args"]["loss scale"] for e in found if e["ph"] == "C" and e["name"] == "loss scale"]
    assert (scales[0], scales[-1]) == (65536.0, 4096.0)
    losses = [e for e in found if e["ph"] == "C" and e["name"] == "loss"]
    assert len(losses) == 119
    instants = [e["name"] for e in found if e["ph"] == "i"]
    assert instants == [
        "skipped step 0",
        "skipped step 1",
        "loss is nan",
        "skipped step 2",
        "skipped step 60",
        "exception",
    ]


def test_every_event_has_a_place_and_tracks_have_names(trace: Trace) -> None:
    found = events(trace)
    names = {e["args"]["name"] for e in found if e["ph"] == "M" and e["name"] == "thread_name"}
    assert names == set(perfetto.TRACKS.values())
    assert all(e["dur"] >= 0 and e["ts"] >= 0 for e in found if e["ph"] == "X")


def test_modules_and_kernels_are_laid_out_within_their_step(tmp_path: Path) -> None:
    write_run(tmp_path, RunInfo())
    writer = TraceWriter(tmp_path, strict=True)
    writer.add("steps", [{**KEY, "t_start": 1.0, "duration_s": 0.1, "data_s": 0.02, "forward_s": 0.05}])
    writer.add(
        "modules",
        [
            {**KEY, "name": "b", "order": 1, "forward_s": 0.02},
            {**KEY, "name": "a", "order": 0, "forward_s": 0.01},
            {**KEY, "name": "root", "order": 2, "is_root": True, "forward_s": 0.04},
            {**KEY, "segment": 7, "name": "lost", "order": 0, "forward_s": 0.04},
        ],
    )
    writer.add(
        "kernels",
        [
            {**KEY, "name": "mm", "kind": "op", "self_host_s": 0.003, "self_device_s": 0.5},
            {**KEY, "name": "gemm", "kind": "kernel", "self_host_s": 0.5, "self_device_s": 0.004},
            {**KEY, "name": "idle", "kind": "kernel", "self_device_s": None},
        ],
    )
    assert writer.close()
    with open_trace(tmp_path) as opened:
        found = events(opened)
    modules = [
        (e["name"], e["ts"], e["dur"]) for e in found if e["ph"] == "X" and e["tid"] == perfetto.MODULES
    ]
    assert modules == [("a", 1_020_000.0, 10_000.0), ("b", 1_030_000.0, 20_000.0)]
    kernels = [
        (e["name"], e["ts"], e["dur"]) for e in found if e["ph"] == "X" and e["tid"] == perfetto.KERNELS
    ]
    assert kernels == [("gemm", 1_000_000.0, 4_000.0), ("mm", 1_004_000.0, 3_000.0)]


def test_an_empty_run(tmp_path: Path) -> None:
    write_run(tmp_path, RunInfo())
    with open_trace(tmp_path) as opened:
        assert events(opened) == []
