from __future__ import annotations

from pathlib import Path

from ampscope.patch.sites import of_kind, read_facts, read_sites
from ampscope.trace.reader import open_trace
from ampscope.trace.records import ProcessInfo
from ampscope.trace.runinfo import claim_process, create_run, finish_run
from ampscope.trace.writer import TraceWriter

FILE = "/home/me/train.py"


def record(run: Path, tables: dict[str, list[dict[str, object]]]) -> None:
    create_run(run, ["train.py"], {})
    claim_process(run, 0, ProcessInfo(bf16_native=True))
    writer = TraceWriter(run)
    for table, rows in tables.items():
        writer.add(table, [{"step": 0, "segment": 0, "proc": 0, **row} for row in rows])
    writer.close()
    finish_run(run, 0)


def test_calls_are_gathered_by_line(tmp_path: Path) -> None:
    run = tmp_path / "run"
    clip: dict[str, object] = {
        "call": "clip_grad_norm_",
        "file": FILE,
        "line": 7,
        "params": ["a", "b"],
        "scaled": "scaled",
    }
    step: dict[str, object] = {
        "call": "scaler.step",
        "file": FILE,
        "line": 8,
        "object": "GradScaler#0",
        "target": "SGD#0",
    }
    inner: dict[str, object] = {
        "call": "optimizer.step",
        "file": FILE,
        "line": 8,
        "object": "SGD#0",
        "detail": "via_scaler",
    }
    calls: list[dict[str, object]] = [clip, step, inner, clip, step, inner, {"call": "backward"}]
    record(run, {"calls": [{"seq": i, **c} for i, c in enumerate(calls)]})
    with open_trace(run) as trace:
        sites = read_sites(trace)
    assert [(s.call, s.line, s.n, s.inner, s.next_step) for s in sites] == [
        ("clip_grad_norm_", 7, 2, False, "SGD#0"),
        ("scaler.step", 8, 2, False, "SGD#0"),
        ("optimizer.step", 8, 2, True, "SGD#0"),
    ]
    assert sites[0].params == ("a", "b")
    assert of_kind(sites, "optimizer.step", "scaler.step") == [sites[1]]


def test_facts(tmp_path: Path) -> None:
    run = tmp_path / "run"
    param = {"name": "a", "owner": "SGD#0", "dtype": "float16", "requires_grad": True, "device": "cuda"}
    op = {"op": "aten::sum", "file": FILE, "line": 3, "in_nonfinite": 0, "out_nonfinite": 1}
    record(
        run,
        {
            "params": [param],
            "steps": [{"outcome": "stepped", "n_backward": 4, "autocast_dtype": "float16"}],
            "ops": [op, op, {**op, "in_nonfinite": 2}],
        },
    )
    with open_trace(run) as trace:
        facts = read_facts(trace)
    assert (facts.device, facts.autocast_dtype, facts.micro, facts.half_params) == ("cuda", "float16", 4, 1)
    assert facts.bf16_native
    assert facts.owners == (("a", "SGD#0"),)
    assert facts.overflows == (("aten::sum", FILE, 3),)


def test_a_run_that_recorded_nothing_of_it(tmp_path: Path) -> None:
    run = tmp_path / "run"
    record(run, {"events": [{"t": 0.0, "event": "note"}]})
    with open_trace(run) as trace:
        assert read_sites(trace) == ()
        facts = read_facts(trace)
    assert (facts.device, facts.autocast_dtype, facts.micro) == ("cpu", None, 1)
