"""Names and messages of a trace are text on every page: no markup, no script, no address of theirs is followed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.app.tracekit import RunKit
from tests.e2e.conftest import OpenTab, Served

pytestmark = pytest.mark.browser

EVIL = "<img src=x onerror=alert(1)>[a](javascript:alert(2))</script><script>alert(3)</script>%{y}"


def poisoned(value: Any, column: str) -> Any:
    """Every free text of a row, made hostile; what the schema enumerates stays."""
    keep = (
        "role",
        "stage",
        "phase",
        "basis",
        "level",
        "dtype",
        "outcome",
        "kind",
        "autocast_dtype",
        "call",
        "cast",
    )
    if isinstance(value, str) and column not in keep:
        return f"{value}{EVIL}"
    return value


@pytest.fixture(scope="module")
def evil(serve: Callable[[list[Path]], Served], tmp_path_factory: pytest.TempPathFactory) -> str:
    kit = RunKit(steps=12).build()
    rows = {
        table: [{k: poisoned(v, k) for k, v in row.items()} for row in rows]
        for table, rows in kit.rows.items()
    }
    root = tmp_path_factory.mktemp("evil")
    paths = [RunKit(rows=rows).write(root / name) for name in ("<img src=x onerror=alert(4)>", "b&run=c#d")]
    return serve(paths).url


def test_every_page_shows_hostile_names_as_text(tab: OpenTab, evil: str) -> None:
    t = tab(url=evil)
    for _ in t.tour():
        expect(t.page.locator(".notice-error")).to_have_count(0)
        assert t.page.locator("img").count() == 0
        assert t.page.locator("a[href^=javascript]").count() == 0
        assert t.page.locator("main script").count() == 0


def test_a_hostile_name_can_be_chosen_and_linked(tab: OpenTab, evil: str) -> None:
    t = tab(url=evil)
    page = t.open("gradients")
    name = f"head.weight{EVIL}"
    page.get_by_label("Tensor", exact=True).first.click()
    page.get_by_role("option", name=name, exact=True).click()
    expect(page.locator(".subtitle code").first).to_have_text(name)
    page.reload()
    t.settle()
    expect(page.locator(".subtitle code").first).to_have_text(name)
