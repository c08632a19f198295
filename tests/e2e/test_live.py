"""A live run refreshes by itself, keeps what the user chose, and stops asking when it has ended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import expect

from ampscope.trace.runinfo import claim_process, create_run, finish_process, finish_run
from ampscope.trace.writer import TraceWriter
from tests.app.tracekit import RunKit, process_info
from tests.e2e.conftest import OpenTab, Served

pytestmark = pytest.mark.browser


def test_it_grows_under_the_eyes(
    tab: OpenTab, serve: Callable[[list[Path]], Served], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ampscope.app.callbacks.LIVE_MS", 300)
    path = tmp_path / "live"
    create_run(path, ["train.py"], {})
    proc = claim_process(path, 0, process_info())
    writer = TraceWriter(path)
    kit = RunKit(steps=10).build()
    for table, rows in kit.rows.items():
        writer.add(table, rows)
    assert writer.flush()
    served = serve([path])
    t = tab(url=served.url)
    page = t.open()
    expect(page.locator(".state-live")).to_have_text("recording")
    expect(page.get_by_text("median of 10 steps")).to_be_visible()
    page.locator("summary").first.click()
    writer.add("steps", RunKit(steps=30).build().rows["steps"][10:])
    assert writer.flush()
    expect(page.get_by_text("median of 28 steps")).to_be_visible()
    expect(page.get_by_text("skipped step (3)")).to_be_visible()
    writer.close()
    finish_process(path, 0, proc, writer.parts)
    finish_run(path, 0)
    expect(page.locator(".state-complete")).to_have_text("complete")
    page.wait_for_timeout(2500)  # the last diagnosis may take a while
    asked = len(t.asked)
    page.wait_for_timeout(1500)
    assert len(t.asked) == asked
