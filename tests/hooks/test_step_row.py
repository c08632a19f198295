from __future__ import annotations

import time

from ampscope.hooks.clock import Segment
from ampscope.hooks.step_row import step_columns
from ampscope.trace.schema import KEY, STEPS


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
