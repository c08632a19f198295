"""Light and dark: the user's choice is kept, and changing it asks nothing of the server."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.e2e.conftest import OpenTab

pytestmark = pytest.mark.browser


def test_the_choice_is_made_in_the_browser_and_kept(tab: OpenTab) -> None:
    t = tab("light")
    page = t.open("gradients")
    root = page.locator("html")
    expect(root).to_have_attribute("data-mantine-color-scheme", "light")
    page.wait_for_timeout(300)
    asked = len(t.asked)
    page.get_by_role("button", name="Switch between light and dark").click()
    expect(root).to_have_attribute("data-mantine-color-scheme", "dark")
    page.wait_for_timeout(300)
    assert len(t.asked) == asked
    tick = page.locator('.js-plotly-plot g[class$="tick"] text').first
    assert tick.evaluate("e => getComputedStyle(e).fill") == "rgb(154, 167, 184)"
    page.goto(t.url + "ops", wait_until="commit")
    expect(root).to_have_attribute("data-mantine-color-scheme", "dark")
    t.settle()
    expect(root).to_have_attribute("data-mantine-color-scheme", "dark")
    assert page.locator(".ag-root").first.evaluate("e => getComputedStyle(e).color") == "rgb(231, 235, 241)"


def test_the_scheme_is_there_before_anything_is_drawn(tab: OpenTab) -> None:
    t = tab("dark")
    t.page.route("**/*renderer*", lambda route: route.abort())
    t.page.goto(t.url)
    assert t.page.locator("html").get_attribute("data-mantine-color-scheme") == "dark"
    t.wrong.clear()
