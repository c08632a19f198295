from __future__ import annotations

import math
from pathlib import Path

from ampscope.compare.headline import headline
from tests.compare.traces import Row, losses, make_trace


def test_the_numbers_of_a_run(tmp_path: Path) -> None:
    steps: list[Row] = [
        {"level": "census", "duration_s": 9.0},
        {"level": "census", "duration_s": 9.0},
        *[{"level": "pulse", "duration_s": 0.01 * i} for i in (1, 2, 3)],
        {"level": "range", "duration_s": 5.0, "loss": math.nan, "outcome": "skipped", "scale": 8.0},
    ]
    base: Row = {"outcome": "stepped", "loss": 2.0, "autocast_dtype": "float16", "host_rss": 5_000_000}
    with make_trace(tmp_path / "run", {"steps": [{**base, **s} for s in steps]}) as trace:
        found = headline(trace)
    assert (found.steps, found.skipped, found.bad_losses, found.last_loss) == (6, 1, 1, 2.0)
    assert (found.step_s, found.steps_per_s) == (0.02, 50.0)
    assert (found.memory, found.on_device) == (5_000_000, False)
    assert (found.autocast_dtype, found.scale) == ("float16", 8.0)


def test_device_memory_comes_before_that_of_the_host(tmp_path: Path) -> None:
    rows = [{**row, "host_rss": 7, "device_allocated": 3} for row in losses(1.0, 1.0)]
    with make_trace(tmp_path / "run", {"steps": rows}) as trace:
        found = headline(trace)
    assert (found.memory, found.on_device) == (3, True)
    assert found.step_s == 0.01


def test_a_run_without_steps(tmp_path: Path) -> None:
    with make_trace(tmp_path / "run", {"events": [{"t": 0.0, "event": "note"}]}) as trace:
        found = headline(trace)
    assert (found.steps, found.step_s, found.steps_per_s, found.memory, found.last_loss) == (
        0,
        None,
        None,
        None,
        None,
    )
