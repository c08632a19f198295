"""The replay of dynamic loss scaling: the arithmetic is that of numerics, its settings are in the address."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from playwright.sync_api import Page, expect

from ampscope.app import formats
from ampscope.numerics.loss_scale import simulate_loss_scale
from tests.e2e.conftest import OpenTab

pytestmark = pytest.mark.browser

FP16 = formats.as_json()[0]


def rounds(amax: list[float | None], scale: list[float] | None = None, **columns: Any) -> dict[str, Any]:
    """Columns for `window.ampscope.replay`, one round per row; without `scale` nothing but readings decides."""
    n = len(amax)
    return {
        "step": list(range(n)), "n": [1] * n, "scale": scale or [None] * n, "skipped": [False] * n,
        "broken": [False] * n, "read": [True] * n, "amax": amax, **columns,
    }  # fmt: skip


def replay(
    script: Page, found: dict[str, Any], init: float, growth: float, backoff: float, every: int
) -> Any:
    policy = {"init": init, "growth": growth, "backoff": backoff, "interval": every}
    return script.evaluate("([r, p, f]) => window.ampscope.replay(r, p, f)", [found, policy, FP16])


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.one_of(st.none(), st.floats(1e-8, 1e6)), min_size=1, max_size=60),
    st.floats(1e-3, 1e9),
    st.sampled_from([1.5, 2.0, 4.0, 3.0]),
    st.sampled_from([0.5, 0.25, 0.9, 0.1]),
    st.integers(1, 7),
)
def test_it_is_the_simulation_of_numerics(
    script: Page, amax: list[float | None], init: float, growth: float, backoff: float, every: int
) -> None:
    got = replay(script, rounds(amax), init, growth, backoff, every)
    want = simulate_loss_scale(amax, None, init, growth, backoff, every)
    assert got["rowScale"] == list(want.scales)
    assert got["rowSkipped"] == list(want.skipped)
    assert (got["last"], got["skipped"], got["assumed"]) == (want.final_scale, want.n_skipped, 0)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=40), st.integers(0, 30), st.integers(1, 5))
def test_the_recorded_policy_gives_the_recorded_course_without_a_reading(
    script: Page, amax: list[float], k: int, every: int
) -> None:
    want = simulate_loss_scale(amax, None, 2.0**k, 2.0, 0.5, every)
    n = len(amax)
    found = rounds([None] * n, list(want.scales), skipped=list(want.skipped), read=[False] * n)
    got = replay(script, found, 2.0**k, 2.0, 0.5, every)
    assert got["rowScale"] == list(want.scales)
    assert (got["skipped"], got["assumed"]) == (want.n_skipped, 0)


@pytest.mark.parametrize(
    ("joined", "course"),
    [
        ([(0, 3, 8.0, False)], ([0, 2], [8.0, 8.0])),
        ([(0, 2, 8.0, True), (2, 5, 4.0, False)], ([0, 2, 6], [8.0, 4.0, 4.0])),
        ([(0, 2, 8.0, True), (2, 1, 4.0, False)], ([0, 2], [8.0, 4.0])),
        ([(0, 2, 8.0, False), (2, 1, 8.0, True), (3, 4, 8.0, False)], ([0, 6], [8.0, 8.0])),
    ],
)
def test_the_recorded_course_has_every_change_and_the_end(script: Page, joined: Any, course: Any) -> None:
    steps, n, scale, skipped = (list(column) for column in zip(*joined, strict=True))
    found = rounds([None] * len(n), scale, step=steps, n=n, skipped=skipped)
    got = script.evaluate("(r) => window.ampscope.recorded(r)", found)
    assert (got["x"], got["y"]) == course
    assert len(got["skips"]) == sum(count for count, skip in zip(n, skipped, strict=True) if skip)


def test_joined_rounds_are_replayed_one_by_one(script: Page) -> None:
    apart = replay(script, rounds([1.0] * 50), 2.0**14, 2.0, 0.5, 3)
    joined = rounds([1.0], n=[50])
    together = replay(script, joined, 2.0**14, 2.0, 0.5, 3)
    assert (together["x"], together["y"]) == (apart["x"], apart["y"])
    assert (together["n"], together["skipped"]) == (50, apart["skipped"])
    assert together["skips"] == apart["skips"] != []


def test_what_is_not_known_is_counted(script: Page) -> None:
    found = rounds([0.5, 0.5, 0.5], [8.0, 8.0, 8.0], read=[False] * 3, skipped=[False, True, False])
    below = replay(script, found, 4.0, 2.0, 0.5, 100)
    assert (below["skipped"], below["assumed"]) == (
        0,
        1,
    )  # the skipped one: at half the scale it may be finite
    above = replay(script, found, 16.0, 2.0, 0.5, 100)
    assert (above["skipped"], above["assumed"]) == (
        1,
        1,
    )  # the first; after the skip the scale is the recorded one
    broken = replay(script, rounds([None], [8.0], broken=[True], skipped=[True]), 1e-3, 2.0, 0.5, 100)
    assert (broken["skipped"], broken["assumed"]) == (1, 0)


def test_flushed_shares_are_those_of_numerics(script: Page) -> None:
    counts, amax = [5, 7, 11, 13], math.ldexp(1.5, -27)
    histogram = {"step": 0, "row": 0, "low": -30, "counts": counts, "amax": amax}
    got = script.evaluate("([h, f]) => window.ampscope.flushedOver(h, () => 4, f)", [[histogram], FP16])
    from ampscope.numerics.binades import HIST_BINS, HIST_MIN, ExponentHistogram

    full = np.zeros(HIST_BINS, dtype=np.int64)
    full[-30 - HIST_MIN : -26 - HIST_MIN] = counts
    hist = ExponentHistogram(
        full, numel=36, zeros=0, nan=0, posinf=0, neginf=0, ge_65520=0, amax=amax, amin_nonzero=None, sum=0.0,
        sumsq=0.0, sumabs=0.0, dtype="float32",
    )  # fmt: skip
    want = simulate_loss_scale([amax], [hist], 4.0).flushed[0]
    assert got == [[0, want, want]]


def test_a_setting_goes_into_the_address_and_asks_nothing(tab: OpenTab) -> None:
    t = tab()
    page = t.open("scale")
    expect(page.get_by_text("With the recorded policy the replay takes the recorded course.")).to_be_visible()
    tile = page.locator(".mini", has_text="skipped steps")
    expect(tile.locator(".mini-value")).to_have_text("3 of 40")
    expect(page.locator(".mini", has_text="basis of the skips").locator(".mini-value")).to_have_text("exact")
    page.wait_for_timeout(300)
    asked = len(t.asked)
    box = page.get_by_label("init_scale", exact=True)
    box.fill("16384")
    box.press("Enter")
    expect(page).to_have_url(re.compile(r"init=16384"))
    expect(tile.locator(".mini-value")).to_have_text("1 of 40")
    expect(page.get_by_text("would have skipped 2 fewer steps than the recorded run")).to_be_visible()
    page.wait_for_timeout(300)
    assert len(t.asked) == asked


def test_a_link_opens_the_same_replay(tab: OpenTab) -> None:
    page = tab().open("scale?init=16384&backoff=0.25")
    expect(page.get_by_label("init_scale", exact=True)).to_have_value("16384")
    expect(page.get_by_label("backoff_factor", exact=True)).to_have_value("0.25")
    expect(page.get_by_text("would have skipped 2 fewer steps")).to_be_visible()


def test_back_to_recorded_restores_every_setting(tab: OpenTab) -> None:
    page = tab().open("scale?init=16384&backoff=0.25&growth=3")
    back = page.get_by_role("button", name="Back to recorded")
    expect(page.get_by_text("would have skipped 2 fewer steps")).to_be_visible()
    expect(back).to_be_enabled()
    back.click()
    expect(page.get_by_text("With the recorded policy the replay takes the recorded course.")).to_be_visible()
    expect(page.get_by_label("init_scale", exact=True)).to_have_value("65536")
    expect(page.get_by_label("backoff_factor", exact=True)).to_have_value("0.5")
    expect(page).to_have_url(re.compile(r"scale$"))
    expect(back).to_be_disabled()


def test_a_refused_policy_can_be_given_up(tab: OpenTab) -> None:
    page = tab().open("scale?growth=1")
    expect(page.get_by_text("growth_factor must be greater than 1")).to_be_visible()
    page.get_by_role("button", name="Back to recorded").click()
    expect(page.get_by_text("With the recorded policy the replay takes the recorded course.")).to_be_visible()


def test_what_gradscaler_refuses_is_said(tab: OpenTab) -> None:
    page = tab().open("scale?growth=1")
    expect(page.get_by_text("growth_factor must be greater than 1")).to_be_visible()
    box = page.get_by_label("growth_factor", exact=True)
    box.fill("2")
    box.press("Enter")
    expect(page.get_by_text("takes the recorded course")).to_be_visible()
