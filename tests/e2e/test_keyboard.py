"""Everything that the mouse does, the keyboard does."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.conftest import OpenTab

pytestmark = pytest.mark.browser


def tab_to(page: Page, accessible: str, limit: int = 60) -> None:
    """Presses Tab until the element with that text or label has the focus."""
    for _ in range(limit):
        page.keyboard.press("Tab")
        found = page.evaluate(
            """() => { const e = document.activeElement;
                       const label = e.labels && e.labels.length ? e.labels[0].innerText : '';
                       return [e.getAttribute('aria-label') || '', e.innerText || '', label].join('|'); }"""
        )
        if accessible in found.split("|"):
            return
    raise AssertionError(f"Tab never reached {accessible!r}")


def test_the_first_stop_skips_the_navigation(tab: OpenTab) -> None:
    page = tab().open("scale")
    page.keyboard.press("Tab")
    link = page.get_by_role("link", name="Skip to the page")
    expect(link).to_be_focused()
    expect(link).to_be_in_viewport()


def test_pages_are_reached_and_the_focus_is_seen(tab: OpenTab) -> None:
    t = tab()
    page = t.open()
    tab_to(page, "Gradients")
    outline = page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"
    page.keyboard.press("Enter")
    t.settle()
    expect(page).to_have_url(re.compile(r"/gradients$"))
    expect(page.get_by_role("link", name="Gradients")).to_have_attribute("aria-current", "page")


def test_a_metric_is_chosen_and_the_focus_stays(tab: OpenTab) -> None:
    page = tab().open("gradients")
    tab_to(page, "Shows")
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("option", name="root mean square")).to_be_visible()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"stat=rms"))
    expect(page.get_by_label("Shows", exact=True).first).to_be_focused()


def test_another_role_rebuilds_the_controls_and_keeps_the_focus(tab: OpenTab) -> None:
    t = tab()
    page = t.open("gradients")
    group = page.get_by_role("radio", name="parameter gradients")
    group.focus()
    page.keyboard.press("ArrowRight")
    expect(page).to_have_url(re.compile(r"of=activation_grad"))
    t.settle()
    expect(page.get_by_label("Tensor", exact=True).first).to_have_value(re.compile(":out$"))


def test_the_slider_moves_the_scale(tab: OpenTab) -> None:
    page = tab().open("gradients")
    knob = page.get_by_role("slider", name=re.compile("what-if loss scale"))
    knob.focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    expect(page.get_by_label("scale", exact=True).first).to_have_value("131072")
    expect(page).to_have_url(re.compile(r"scale=131072"))


def test_a_disclosure_opens(tab: OpenTab) -> None:
    page = tab().open()
    page.locator("summary").first.focus()
    page.keyboard.press("Enter")
    expect(page.locator("details").first).to_have_attribute("open", "")


def test_the_replay_is_set_and_the_report_is_reached(tab: OpenTab) -> None:
    t = tab()
    page = t.open("scale")
    tab_to(page, "growth_interval")
    page.keyboard.press("Control+A")
    page.keyboard.type("3")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"interval=3"))
    page = t.open("run")
    page.get_by_role("link", name="report.md").focus()
    with page.expect_download() as found:
        page.keyboard.press("Enter")
    assert found.value.suggested_filename == "report.md"
