from __future__ import annotations

import time

from ampscope.hooks.clock import Segment
from ampscope.hooks.step_row import rested_bundle, step_columns
from ampscope.trace.schema import KEY, SCALER, STEPS


def test_every_column_of_the_table_is_known_and_the_loss_is_a_mean() -> None:
    began = time.perf_counter()
    segment = Segment(0, began, outcome="skipped", losses=[1.0, 3.0], micro=2, ended=began + 2.0)
    row = step_columns(segment, began - 1.0)
    assert set(row) <= set(STEPS.column_names)
    assert set(STEPS.column_names) - set(row) <= {c.name for c in KEY} | {
        "forward_device_s",
        "backward_device_s",
        "optimizer_device_s",
    }
    assert (row["loss"], row["n_backward"], row["skipped"]) == (2.0, 2, True)
    assert (row["t_start"], row["duration_s"]) == (1.0, 2.0)


def test_no_loss_is_not_zero_loss() -> None:
    assert step_columns(Segment(0, 0.0, outcome="abandoned", ended=1.0), 0.0)["loss"] is None


def test_the_steps_of_a_rest_follow_each_other() -> None:
    scaled = [{"scale": 8.0}, {"scale": 16.0}]
    first = Segment(7, 10.0)
    bundle = rested_bundle(first, 4, 2, [11.0, 13.0], scaled, {"opt": "SGD#0", "own_s": 0.5}, 9.0)
    assert bundle.outcome == "ended", "it has no row of its own"
    steps = [row for table, row in bundle.rows if table == "steps"]
    assert [(r["step"], r["segment"], r["opt_step"]) for r in steps] == [(4, 7, 2), (5, 8, 3)]
    assert [(r["t_start"], r["duration_s"], r["scale"]) for r in steps] == [(1.0, 1.0, 8.0), (2.0, 2.0, 16.0)]
    assert all(r["outcome"] == "stepped" and r["opt"] == "SGD#0" and r["own_s"] == 0.5 for r in steps)
    assert "n_backward" not in steps[0]
    assert set(steps[0]) <= set(STEPS.column_names)
    assert [row["segment"] for table, row in bundle.rows if table == "scaler"] == [7, 8]
    assert set(scaled[0]) <= set(SCALER.column_names)
