"""A diagnosis that takes its time: everything else is there before it, and it comes by itself."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.app.tracekit import RunKit
from tests.e2e.conftest import OpenTab, Served

pytestmark = pytest.mark.browser


def test_the_page_does_not_wait_for_the_verdict(
    tab: OpenTab, serve: Callable[[list[Path]], Served], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = import_module("ampscope.diagnose")
    real: Callable[..., Any] = package.diagnose
    go = threading.Event()

    def diagnose(*args: Any) -> Any:
        assert go.wait(60)
        return real(*args)

    monkeypatch.setattr(package, "diagnose", diagnose)
    try:
        served = serve([RunKit().build().write(tmp_path / "slow")])
        page = tab(url=served.url).page
        # Each visit of a judged page would hold connections and threads if its parts waited.
        for slug in ("", "findings", "findings/AMP101", ""):
            page.goto(served.url + slug)
            expect(page.get_by_text("Running the diagnoses").first).to_be_visible()
        expect(page.locator(".stat")).to_have_count(4)
        expect(page.locator(".js-plotly-plot .main-svg").first).to_be_visible()
        page.get_by_role("link", name="Gradients").click()
        expect(page.locator(".js-plotly-plot:has(.main-svg .subplot)")).to_have_count(4)
        page.get_by_role("link", name="Overview").click()
        expect(page.locator(".verdict-text")).to_have_count(0)
    finally:
        go.set()
    expect(page.locator(".verdict-text")).to_be_visible()
    expect(page.get_by_text(re.compile("Checked .* diagnoses"))).to_be_visible()
