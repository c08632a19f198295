"""The what-if is computed in the browser: no request, and the numbers of ampscope.numerics."""

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
from ampscope.numerics.binades import HIST_BINS, HIST_MIN, ExponentHistogram
from ampscope.numerics.loss_scale import scale_window
from ampscope.numerics.what_if import what_if
from tests.e2e.conftest import OpenTab

pytestmark = pytest.mark.browser


def test_moving_the_scale_asks_nothing_and_changes_the_numbers(tab: OpenTab) -> None:
    t = tab()
    page = t.open("gradients?tensor=head.weight&scale=16384")
    flushed = page.locator(".mini", has_text="flushed to 0").locator(".mini-value")
    expect(flushed).to_have_text("≥ 0 %")  # float16 flushed before they were read
    page.wait_for_timeout(300)
    asked = len(t.asked)
    box = page.get_by_label("scale", exact=True).first
    box.fill("0.125")
    box.press("Enter")
    expect(flushed).not_to_have_text("≥ 0 %")
    expect(page).to_have_url(re.compile(r"scale=0\.125"))
    expect(page.locator(".advice").first).to_contain_text("Safe scales")
    page.get_by_label("What if: format", exact=True).first.click()
    page.get_by_role("option", name="bfloat16").click()
    expect(flushed).to_have_text("≥ 0 %")  # float16 flushed before they were read
    page.wait_for_timeout(300)
    assert len(t.asked) == asked


def test_every_format_is_shown_at_the_scale(tab: OpenTab) -> None:
    page = tab().open("gradients?tensor=head.weight&scale=16384&format=fp8_e5m2")
    rows = page.locator(".formats tbody tr")
    expect(rows).to_have_count(len(formats.FORMATS))
    expect(page.locator(".formats .chosen th")).to_have_text("float8 e5m2")
    flushed = page.locator(".mini", has_text="flushed to 0").locator(".mini-value").inner_text()
    expect(page.locator(".formats .chosen td").first).to_have_text(flushed)
    least, most = (rows.filter(has_text=name).locator("td").nth(4) for name in ("bfloat16", "float4"))
    expect(least).to_have_text("≥ 0 %")
    expect(most).not_to_have_text("≥ 0 %")
    expect(page.get_by_text("cannot be told from a histogram")).to_be_visible()


def exponent_histogram(low: int, counts: list[int], amax: float | None) -> ExponentHistogram:
    """`counts` from exponent `low` on, with the largest value given."""
    full = np.zeros(HIST_BINS, dtype=np.int64)
    full[low - HIST_MIN : low - HIST_MIN + len(counts)] = counts
    return ExponentHistogram(
        full, numel=sum(counts), zeros=0, nan=0, posinf=0, neginf=0, ge_65520=0, amax=amax, amin_nonzero=None, sum=0.0,
        sumsq=0.0, sumabs=0.0, dtype="float32",
    )  # fmt: skip


@st.composite
def tensors(draw: st.DrawFn) -> dict[str, Any]:
    low = draw(st.integers(-60, 10))
    counts = draw(st.lists(st.integers(0, 1000), min_size=1, max_size=40))
    counts[-1] += 1
    top = low + len(counts) - 1
    return {"name": "w", "low": low, "counts": counts, "amax": math.ldexp(draw(st.floats(1, 1.999)), top)}


@settings(max_examples=60, deadline=None)
@given(tensors(), st.integers(-20, 40), st.sampled_from(formats.as_json()))
def test_powers_of_two_are_exactly_those_of_numerics(
    script: Page, tensor: dict[str, Any], k: int, format: dict[str, Any]
) -> None:
    got = script.evaluate("([t, k, f]) => window.ampscope.whatIf(t, k, f)", [tensor, k, format])
    hist = exponent_histogram(tensor["low"], tensor["counts"], tensor["amax"])
    want = what_if(hist, format["name"], 2.0**k)
    assert got["flushed"] == [want.flushed, want.flushed]
    assert got["subnormal"] == [want.subnormal, want.subnormal]
    assert got["headroom"] == pytest.approx(want.headroom_binades)
    low, high = got["overflow"]
    assert low <= want.overflow_lower or want.overflow_lower == low
    assert high >= want.overflow_upper


@settings(max_examples=40, deadline=None)
@given(tensors(), st.floats(1e-3, 1e9), st.sampled_from(formats.as_json()))
def test_other_scales_are_bounded(
    script: Page, tensor: dict[str, Any], scale: float, format: dict[str, Any]
) -> None:
    got = script.evaluate(
        "([t, k, f]) => window.ampscope.whatIf(t, k, f)", [tensor, math.log2(scale), format]
    )
    hist = exponent_histogram(tensor["low"], tensor["counts"], tensor["amax"])
    want = what_if(hist, format["name"], scale)
    for name in ("flushed", "subnormal", "overflow"):
        low, high = got[name]
        assert low <= getattr(want, f"{name}_lower")
        assert getattr(want, f"{name}_upper") <= high


@settings(max_examples=40, deadline=None)
@given(st.lists(tensors(), min_size=1, max_size=4), st.sampled_from([0.0, 1e-3, 0.1]))
def test_the_window_is_that_of_numerics(script: Page, found: list[dict[str, Any]], epsilon: float) -> None:
    named = [{**tensor, "name": f"t{i}"} for i, tensor in enumerate(found)]
    hists = {t["name"]: exponent_histogram(t["low"], t["counts"], t["amax"]) for t in named}
    fp16 = formats.as_json()[0]
    got = script.evaluate("([t, f, e]) => window.ampscope.window(t, f, e)", [named, fp16, epsilon])
    want = scale_window(hists, "fp16", epsilon)
    assert 2.0 ** got["low"] == want.lo
    assert 2.0 ** got["high"] == want.hi
    assert got["below"] == want.closes_low
    assert got["above"] == want.closes_high


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("number", 3e-8, "3e-8"), ("number", 12345.678, "12350"), ("number", 0, "0"), ("number", 6.71e7, "6.71e7"),
        ("share", 0.5, "50 %"), ("share", 1.2e-7, "1.2e-5 %"), ("share", 0.99999, "> 99.99 %"), ("share", 1, "100 %"),
        ("seconds", 0.0123, "12.3 ms"), ("seconds", 3.2e-7, "3.2e-7 s"), ("seconds", 600, "10 min"),
        ("bytes", 1536, "1.5 KiB"), ("power", 65536, "65536 (2¹⁶)"), ("power", 1000, "1000"),
    ],
)  # fmt: skip
def test_numbers_read_as_they_do_elsewhere(script: Page, kind: str, value: float, text: str) -> None:
    assert script.evaluate("([k, v]) => window.ampscope[k](v)", [kind, value]) == text
