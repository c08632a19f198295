from __future__ import annotations

import time

from ampscope.hooks.clock import StepClock


def ended(clock: StepClock, optimizer: str | None) -> tuple[int, int | None]:
    segment = clock.open_segment()
    segment.work_began = time.perf_counter()
    return clock.assign(segment, optimizer)


def test_one_optimizer_counts_its_steps() -> None:
    clock = StepClock()
    assert [ended(clock, "A") for _ in range(3)] == [(0, 0), (1, 1), (2, 2)]


def test_two_optimizers_share_a_step_until_one_comes_again() -> None:
    clock = StepClock()
    clock.constructed("D")
    clock.constructed("G")
    steps = [ended(clock, name)[0] for name in "DGDG"]
    assert steps == [0, 0, 1, 1]


def test_an_inner_critic_loop_counts_critic_steps() -> None:
    clock = StepClock()
    assert [ended(clock, name) for name in "DDGDDG"] == [(0, 0), (1, 1), (1, 0), (2, 2), (3, 3), (3, 1)]


def test_an_optimizer_made_later_opens_a_step_of_its_own() -> None:
    clock = StepClock()
    assert ended(clock, "A") == (0, 0)
    clock.constructed("B")
    assert ended(clock, "B") == (1, 0)


def test_abandoned_work_is_a_step_by_itself() -> None:
    clock = StepClock()
    assert ended(clock, "A") == (0, 0)
    assert ended(clock, None) == (1, None)
    assert ended(clock, "A") == (2, 1)


def test_steps_that_were_passed_over_are_counted() -> None:
    clock = StepClock()
    assert ended(clock, "A") == (0, 0)
    clock.open_segment()
    assert clock.pass_over(5, "A", time.perf_counter()) == (1, 1)
    assert clock.open_segment().index == 6
    assert clock.assign(clock.open_segment(), "A") == (6, 6)
    clock.open_segment()
    clock.pass_over(2, "A", time.perf_counter())
    clock.constructed("B")
    assert ended(clock, "B") == (9, 0), "made after the last of them had ended: a step of its own"
