from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from ampscope.report import collect_gradients
from ampscope.report.collect_gradients import Spread
from ampscope.report.query import main_stream
from ampscope.trace.reader import Trace, open_trace
from ampscope.trace.records import RunInfo
from ampscope.trace.runinfo import write_run
from ampscope.trace.writer import TraceWriter
from tests.report.handmade import PARAMETERS, tensor_rows

Rows = list[dict[str, object]]


def record(run: Path, tensors: Rows, steps: Rows) -> Trace:
    write_run(run, RunInfo())
    writer = TraceWriter(run, strict=True)
    writer.add("tensors", tensors)
    writer.add("steps", steps)
    assert writer.close()
    return open_trace(run)


def grad(step: int, **changes: object) -> dict[str, object]:
    return {
        "step": step, "segment": step, "proc": 0, "name": "w", "role": "grad", "stage": "pre_unscale", "scaled": True,
        "scale": 1024.0, "numel": 100, "zeros": 10, "nan": 1, "posinf": 0, "neginf": 0,
        "hist_lo": -27, "hist": [3, 4, 5, 0, 77], **changes,
    }  # fmt: skip


def test_counts_are_those_of_the_trace(trace: Trace) -> None:
    found = collect_gradients.read(trace, main_stream(trace))
    rows = [r for r in tensor_rows() if r["role"] == "grad"]
    total = sum(sum(r["hist"]) for r in rows)  # type: ignore[call-overload]
    assert sum(s.nonzero for s in found.by_step) == sum(s.nonzero for s in found.by_tensor) == total
    assert [s.label for s in found.by_tensor] == list(PARAMETERS)
    assert [s.label for s in found.by_step] == [str(step) for step in range(0, 120, 5)]
    assert found.scaled
    by_name = {s.label: s for s in found.by_tensor}
    assert by_name["head.weight"].headroom == 15 - 8
    assert by_name["head.weight"].bad == 4


def test_bins_are_split_at_the_edges_of_float16() -> None:
    spread = Spread("w", 400, 0, 0, 0, {-26: 1, -25: 2, -15: 4, -14: 8, 15: 16, 16: 32})
    assert spread.flushed == 1 / 63
    assert spread.subnormal == 6 / 63
    assert spread.overflow == 32 / 63
    assert spread.headroom == -1
    assert Spread("w", 4, 4, 0, 0, {}).flushed is None


@pytest.mark.parametrize(
    ("changes", "scale", "lowest"),
    [
        ({}, 1024.0, -27),
        ({"scaled": False, "scale": 1.0}, 1024.0, -17),
        ({"scaled": False, "scale": 1.0}, None, -27),
        ({"scaled": False, "scale": 4.0}, 1024.0, -19),
        ({"scaled": None, "scale": None}, 2.0, -26),
    ],
)
def test_values_are_shown_times_the_scale_in_force(
    tmp_path: Path, changes: dict[str, object], scale: float | None, lowest: int
) -> None:
    steps: Rows = [{"step": 0, "segment": 0, "proc": 0, "scale": scale}]
    with record(tmp_path, [grad(0, **changes)], steps) as opened:
        found = collect_gradients.read(opened, main_stream(opened))
    assert found.by_tensor[0].bins == {lowest: 3, lowest + 1: 4, lowest + 2: 5, lowest + 4: 77}


def test_of_several_moments_the_earliest_counts_once(tmp_path: Path) -> None:
    rows = [grad(0, stage=stage) for stage in ("post_clip", "pre_unscale", "pre_clip")]
    with record(tmp_path, rows, []) as opened:
        found = collect_gradients.read(opened, main_stream(opened))
    assert found.by_step[0].numel == 100


def test_a_long_run_is_sampled_evenly(tmp_path: Path) -> None:
    with record(tmp_path, [grad(step) for step in range(1000)], []) as opened:
        found = collect_gradients.read(opened, main_stream(opened))
    steps = [int(s.label) for s in found.by_step]
    assert len(steps) == collect_gradients.COLUMNS
    assert steps[0] == 0
    assert max(b - a for a, b in itertools.pairwise(steps)) <= 11


def test_heat_maps_hold_shares_of_all_elements(tmp_path: Path) -> None:
    with record(tmp_path, [grad(0), grad(5)], []) as opened:
        found = collect_gradients.read(opened, main_stream(opened))
    over_steps, by_tensor = collect_gradients.over_steps(found), collect_gradients.by_tensor(found)
    assert over_steps is not None
    assert by_tensor is not None
    assert over_steps.labels == ("0", "5")
    assert over_steps.zeros == (0.1, 0.1)
    assert over_steps.nonfinite == (0.01, 0.01)
    assert over_steps.cells[over_steps.high - -27][0] == 0.03
    assert by_tensor.cells[0][-27 - by_tensor.low] == 0.03
    assert len(over_steps.cells) == over_steps.high - over_steps.low + 1


def test_gradients_that_are_all_zero_are_said_to_be(tmp_path: Path) -> None:
    with record(tmp_path, [grad(0, hist=None, hist_lo=None, zeros=99)], []) as opened:
        found = collect_gradients.read(opened, main_stream(opened))
    fact = collect_gradients.fact(found)
    assert fact is not None
    assert (fact.label, fact.value, fact.basis) == ("gradients exactly zero", 0.99, "observed")
    assert collect_gradients.over_steps(found) is not None


def test_the_worst_tensors_lead_the_table(trace: Trace) -> None:
    found = collect_gradients.read(trace, main_stream(trace))
    table = collect_gradients.table(found)
    assert table is not None
    assert next(row[0] for row in table.rows) == "embed.weight"
    assert table.total == len(PARAMETERS)


def test_nothing_was_sampled(tmp_path: Path) -> None:
    with record(tmp_path, [], []) as opened:
        found = collect_gradients.read(opened, main_stream(opened))
    assert collect_gradients.fact(found) is None
    assert collect_gradients.table(found) is None
    assert collect_gradients.over_steps(found) is None
    assert collect_gradients.by_tensor(found) is None
