"""Every page in both themes: it renders, without console errors, without a request that leaves this machine."""

from __future__ import annotations

import itertools
import re

import pytest
from playwright.sync_api import expect

from ampscope.app.pages import PAGES
from tests.e2e.conftest import OpenTab, Tab

pytestmark = pytest.mark.browser

FIGURES = {
    "": 1, "findings": 0, "scale": 2, "gradients": 4, "activations": 3, "updates": 3, "ops": 1, "timing": 3,
    "compare": 2, "run": 0,
}  # fmt: skip
"""Figures that a page of a full run draws."""


def brightness(color: str) -> float:
    """0 … 255 of a computed `rgb(…)`."""
    return sum(float(x) for x in re.findall(r"[\d.]+", color)[:3]) / 3


def check(t: Tab, slug: str) -> None:
    """The page that is open drew all it should, in the colours of its theme."""
    page = t.page
    expect(page.locator(".notice-error")).to_have_count(0)
    expect(page.locator(".js-plotly-plot:has(.main-svg .subplot)")).to_have_count(FIGURES[slug])
    title = next(p.title for p in PAGES if p.slug == slug)
    expect(page).to_have_title(f"{title} · first · ampscope")
    expect(page.locator(".nav-link[data-active]")).to_have_text(re.compile(f"^{title}"))
    surface = page.locator("body").evaluate("e => getComputedStyle(e).backgroundColor")
    text = page.locator("h1").evaluate("e => getComputedStyle(e).color")
    assert (
        (brightness(surface) < 60 < brightness(text)) if t.scheme == "dark" else (brightness(surface) > 200)
    )
    if FIGURES[slug]:
        tick = page.locator('.js-plotly-plot g[class$="tick"] text').first.evaluate(
            "e => getComputedStyle(e).fill"
        )
        assert abs(brightness(tick) - brightness(surface)) > 80
    expect(page.get_by_role("button", name=re.compile("Share|Cloud|Edit"))).to_have_count(0)


@pytest.mark.parametrize("slug", [page.slug for page in PAGES])
def test_a_page_renders(tab: OpenTab, slug: str) -> None:
    t = tab()
    t.open(slug)
    check(t, slug)
    assert any("_dash-update-component" in url for url in t.asked)


def test_every_page_renders_in_the_dark(tab: OpenTab) -> None:
    t = tab("dark")
    for slug in t.tour():
        check(t, slug)


def test_every_page_of_an_empty_run_says_so(tab: OpenTab) -> None:
    t = tab()
    for _ in t.tour("?run=bare"):
        expect(t.page.locator(".notice-error")).to_have_count(0)
        expect(t.page.locator(".state-cut")).to_have_text("cut off")


def test_the_first_screen_answers(tab: OpenTab) -> None:
    page = tab().open()
    expect(page.locator(".verdict-text")).to_be_visible()
    expect(page.locator(".stat")).to_have_count(4)
    expect(page.get_by_text(re.compile("Checked .* diagnoses"))).to_be_visible()
    expect(page.get_by_text(re.compile("ampscope itself took 1.17 % of the wall time"))).to_be_visible()
    expect(page.get_by_text("skipped step (3)")).to_be_visible()


def test_nan_losses_are_seen(tab: OpenTab) -> None:
    page = tab().open("?run=second")
    expect(page.get_by_text("loss is NaN or inf")).to_be_visible()


@pytest.mark.parametrize("slug", ["", "gradients", "ops"])
def test_a_narrow_screen_has_a_drawer_and_no_sideways_scroll(tab: OpenTab, slug: str) -> None:
    page = tab(width=420).open(slug)
    expect(page.locator(".nav-link").first).not_to_be_in_viewport()
    page.get_by_role("button", name="Navigation").click()
    expect(page.locator(".nav-link").first).to_be_in_viewport()
    page.get_by_role("button", name="Navigation").click()
    wide, shown = page.locator("html").evaluate("e => [e.scrollWidth, e.clientWidth]")
    assert wide <= shown + 1


def test_a_narrow_header_names_the_run_and_overlaps_nothing(tab: OpenTab) -> None:
    page = tab(width=420).open()
    choice = page.get_by_role("textbox", name="Run", exact=True)
    expect(choice).to_have_value("first")
    seen = [page.locator("#burger"), choice, page.locator("#copy-link"), page.locator("#theme")]
    boxes = [box for box in (item.bounding_box() for item in seen) if box]
    assert len(boxes) == len(seen)
    assert all(one["x"] + one["width"] <= two["x"] for one, two in itertools.pairwise(boxes))
    assert boxes[1]["width"] > 150
    assert boxes[-1]["x"] + boxes[-1]["width"] <= 420
    assert page.locator("#copy-link").inner_text() == "Copy link"
