"""Times: phases add up to the step, sampled steps are told apart, absence of a device is said."""

from __future__ import annotations

import pytest

from ampscope.app.queries import timing
from ampscope.app.queries.source import Source


def test_phases_add_up_to_the_step(src: Source) -> None:
    frame = timing.phases(src)
    parts = frame[[*timing.PHASES, "rest"]].sum(axis=1)
    assert parts.to_numpy() == pytest.approx(frame["total"].to_numpy())
    assert frame["sampled"].tolist() == [step % 2 == 0 or step == 1 for step in range(40)]


def test_step_times_leave_the_first_two_out(src: Source) -> None:
    row = timing.step_times(src).iloc[0]
    assert row["n"] == 38
    assert row["p50"] == pytest.approx(0.06)
    assert row["p95"] == pytest.approx(0.07)


def test_modules_and_kernels_most_time_first(src: Source) -> None:
    assert timing.modules(src)["forward_s"].is_monotonic_decreasing
    assert timing.kernels(src)["name"].tolist()[0].startswith("aten::")


def test_without_a_device_there_is_no_tensor_core_share(src: Source) -> None:
    assert timing.tensor_core_share(src) is None
    assert timing.device_phases(src).iloc[0].isna().all()


def test_overhead_is_own_time_over_wall_time(src: Source, bare: Source) -> None:
    assert timing.overhead(src) == pytest.approx(
        0.0007 * 40 / (40 * 0.05 + 0.01 * sum(s % 3 for s in range(40)))
    )
    assert timing.overhead(bare) is None
    assert set(timing.ledger(src)["collector"]) == {"pulse", "grads", "census"}


def test_nothing_recorded(bare: Source) -> None:
    assert timing.phases(bare).empty
    assert timing.step_times(bare).iloc[0]["n"] == 0
    assert timing.tensor_core_share(bare) is None
