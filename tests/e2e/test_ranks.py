"""A run of several processes: which one is shown is said, chosen in the header, and kept in the address."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import expect

from ampscope.trace.runinfo import claim_process, create_run, finish_process, finish_run
from ampscope.trace.writer import TraceWriter
from tests.app.tracekit import RunKit, process_info
from tests.e2e.conftest import OpenTab, Served

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def ranks(serve: Callable[[list[Path]], Served], tmp_path_factory: pytest.TempPathFactory) -> str:
    """Rank 0 in float16, rank 1 in bfloat16."""
    path = tmp_path_factory.mktemp("runs") / "ranks"
    create_run(path, ["torchrun", "train.py"], {"every": 2})
    for rank, half in enumerate(("float16", "bfloat16")):
        proc = claim_process(path, rank, process_info())
        writer = TraceWriter(path, rank=rank)
        for table, rows in RunKit(steps=10 + 10 * rank, half=half).build().rows.items():
            writer.add(table, rows)
        writer.close()
        finish_process(path, rank, proc, writer.parts)
    finish_run(path, 0)
    return serve([path]).url


def test_a_rank_is_chosen_and_kept(tab: OpenTab, ranks: str) -> None:
    t = tab(url=ranks)
    page = t.open()
    expect(page.locator(".which")).to_contain_text("Shown: rank 0 of 2 processes")
    expect(page.get_by_text("median of 10 steps")).to_be_visible()
    page.get_by_label("Process", exact=True).first.click()
    page.get_by_role("option", name="rank 1").click()
    expect(page).to_have_url(re.compile(r"process=1\.0"))
    expect(page.locator(".which")).to_contain_text("Shown: rank 1 of 2 processes")
    expect(page.get_by_text("median of 18 steps")).to_be_visible()
    page.get_by_role("link", name="Timing").click()
    expect(page).to_have_url(re.compile(r"/timing\?process=1\.0"))
    expect(page.locator(".which")).to_contain_text("rank 1")


def test_a_link_opens_the_same_rank(tab: OpenTab, ranks: str) -> None:
    page = tab(url=ranks).open("ops?process=1.0")
    expect(page.locator(".which")).to_contain_text("rank 1")
    expect(page.locator(".legendtext").get_by_text("bfloat16")).to_be_visible()


def test_a_run_of_one_process_says_nothing_of_it(tab: OpenTab) -> None:
    expect(tab().open().locator(".which")).to_have_count(0)
