from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ampscope.hooks.budget import (
    ASK_AGAIN,
    ATTENTION,
    COUNTS,
    GRACE_S,
    LOOK_AGAIN,
    LOOK_UP,
    PULSES,
    UNSEEN,
    UNSEEN_OF_SAMPLES,
    Budget,
    is_census,
    is_milestone,
)


def test_the_census_schedule() -> None:
    assert [i + 1 for i in range(9000) if is_census(i)] == [1, 2, 8, 32, 128, 512, 2048, 8192]


def test_milestones_are_powers_of_two() -> None:
    assert [i + 1 for i in range(300) if is_milestone(i)] == [1, 2, 4, 8, 16, 32, 64, 128, 256]


@given(
    share=st.floats(0.001, 0.2),
    step_s=st.floats(1e-3, 1.0),
    range_s=st.floats(1e-4, 0.5),
)
def test_own_time_stays_within_the_share_and_the_grace(share: float, step_s: float, range_s: float) -> None:
    budget = Budget(share=share, level="range")
    wall = milestones = 0.0
    for index in range(600):
        level = budget.choose(index, wall, 1, index)
        cost = range_s if level == "range" else 0.0
        milestones += cost if is_milestone(index) else 0.0
        wall += step_s + cost
        budget.charge(level, cost)
    assert budget.spent_s <= max(GRACE_S, share * wall) + UNSEEN_OF_SAMPLES * (milestones + range_s)


@settings(deadline=None)
@given(
    step_s=st.floats(2e-4, 0.1),
    pulse_s=st.floats(1e-6, 5e-3),
    count=st.floats(0.0, 0.5),
    optimizers=st.integers(1, 3),
)
def test_pulses_and_counts_keep_to_their_shares_or_one_in_a_while(
    step_s: float, pulse_s: float, count: float, optimizers: int
) -> None:
    budget = Budget(share=0.02)
    budget.charge("census", 2 * GRACE_S)  # nothing is left for samples
    cost = {"pulse": pulse_s, "count": count * pulse_s, "rest": 0.0}
    wall, told, index = 100.0, "", 0
    while index < 4000:
        level = budget.choose(index, wall, optimizers, index)
        segments = budget.rest_segments(index, index) if level == "rest" else 1
        told += {"count": " ", "rest": " ", "pulse": "p"}.get(level, "s") * segments
        index += segments
        wall += segments * (step_s + pulse_s)
        budget.charge(level, cost.get(level, 0.0))
    allowed = 0.02 * wall
    least = UNSEEN * pulse_s * 4000 * 2 * optimizers / LOOK_AGAIN
    assert budget.pulses_s <= PULSES * allowed + least + 2 * UNSEEN * optimizers * pulse_s
    assert budget.counts_s <= COUNTS * allowed + ASK_AGAIN * UNSEEN * pulse_s
    assert all(len(run) >= 2 * optimizers for run in told.split()[:-1] if "s" not in run)
    assert " " * (LOOK_UP + ASK_AGAIN) not in told


def test_loops_that_cannot_pay_for_counting_rest_until_something_is_due() -> None:
    budget = Budget(share=0.02)
    budget.charge("pulse", 2 * GRACE_S)
    budget.charge("count", 2 * GRACE_S)
    assert budget.choose(128, 1.0, 1, 128) == "pulse"  # none for a long time
    assert budget.choose(129, 1.0, 1, 129) == "pulse"
    assert budget.choose(130, 1.0, 1, 130) == "rest"
    assert budget.rest_segments(130, 130) == 255 - 130, "the next milestone"
    assert budget.rest_segments(600, 600) == 129 + LOOK_UP + 1 - 600, "a pulse once in a while"
    window = Budget(share=0.02, window=(140, None))
    window.last_pulse = 129
    assert window.rest_segments(130, 120) == 20, "the window that was asked for"


def test_trouble_brings_pulses_once() -> None:
    budget = Budget(share=0.0)
    budget.charge("pulse", 2 * GRACE_S)
    levels = []
    for index in range(140):
        levels.append(budget.choose(index, 1.0, 1, index))
        if index >= 70:
            budget.attend(index)
    assert levels[40:62] == ["count"] * 22
    assert levels[71 : 71 + ATTENTION] == ["pulse"] * ATTENTION
    assert levels[71 + ATTENTION : 120].count("count") > 40


def test_a_watch_sees_every_segment() -> None:
    budget = Budget(share=0.0)
    budget.charge("pulse", 2 * GRACE_S)
    assert [budget.choose(i, 1.0, 1, i) for i in (40, 41)] == ["count"] * 2
    budget.watched = True
    assert [budget.choose(i, 1.0, 1, i) for i in (42, 43)] == ["pulse"] * 2


def test_the_writer_counts_but_for_its_start() -> None:
    budget = Budget(share=0.02)
    for seconds in (0.0, 0.5, 0.5, 0.75):
        budget.charge("pulse", 0.0, seconds)
    assert budget.spent_s == pytest.approx(0.25)


def test_what_a_sample_leaves_to_be_done_is_its_own() -> None:
    budget = Budget(share=0.02)
    budget.profiled = 3
    assert budget.choose(63, 0.0, 1, 63) == "range"
    budget.charge("range", 0.1)
    assert budget.choose(64, 0.0, 1, 64) == "pulse"
    budget.charge("pulse", 0.3, late_s=0.2)
    assert budget.last_cost["range"] == pytest.approx(UNSEEN_OF_SAMPLES * 0.3)
    assert budget.pulses_s == budget.last_cost["pulse"] == pytest.approx(UNSEEN * 0.1)
    assert budget.spent_s == pytest.approx(UNSEEN_OF_SAMPLES * 0.3 + UNSEEN * 0.1)


def test_a_fixed_interval_and_a_window() -> None:
    every = Budget(share=0.0, every=3, level="range")
    assert [every.choose(i, 0.0, 1, i) for i in range(6)] == ["range", "pulse", "pulse"] * 2
    window = Budget(share=1.0, every=1, level="range", window=(2, 4))
    assert [window.choose(i, 0.0, 1, i) for i in range(6)] == ["pulse"] * 2 + ["range"] * 2 + ["pulse"] * 2


@pytest.mark.parametrize(("every", "profiles"), [(1, [3, 64, 1024]), (3, [4, 64, 1024]), (64, [3, 65, 1025])])
def test_a_fixed_interval_keeps_census_and_profile_whatever_they_cost(
    every: int, profiles: list[int]
) -> None:
    budget = Budget(share=0.0, every=every)
    levels = []
    for index in range(1100):
        levels.append(budget.choose(index, 0.0, 1, index))
        budget.charge(levels[-1], 100.0)
    assert [i for i, level in enumerate(levels) if level == "profile"] == profiles
    assert [i for i, level in enumerate(levels) if level == "census"] == [0, 1, 7, 31, 127, 511]
    missed = {i for i in range(0, 1100, every) if levels[i] == "pulse"}
    assert missed == set()


def test_op_times_wait_until_they_are_in_hand() -> None:
    budget = Budget(share=0.02)
    budget.charge("census", GRACE_S + 0.1)
    wall = [5.2 * i for i in range(80)]
    chosen = [i for i in range(80) if budget.choose(i, wall[i], 1, i) == "profile"]
    assert chosen == [15, 64]


def test_op_times_of_a_late_window() -> None:
    budget = Budget(share=0.02, window=(20, 30))
    assert [i for i in range(80) if budget.choose(i, 1e3, 1, i) == "profile"] == [20]


def test_a_cycle_of_optimizers_is_read_as_a_whole() -> None:
    budget = Budget(share=0.0, every=4, level="range")
    assert [budget.choose(i, 0.0, 2, i) for i in range(6)] == [
        "range",
        "range",
        "pulse",
        "pulse",
        "range",
        "range",
    ]


def test_pulse_never_reads_more() -> None:
    budget = Budget(share=1.0, level="pulse")
    assert {budget.choose(i, 1e9, 1, i) for i in range(200)} == {"pulse"}


def test_nothing_left_means_no_more_than_milestones() -> None:
    budget = Budget(share=0.0, level="range")
    budget.charge("range", 10.0)
    sampled = [i for i in range(200) if budget.choose(i, 1.0, 1, i) == "range"]
    assert sampled == [i for i in range(200) if is_milestone(i)]
