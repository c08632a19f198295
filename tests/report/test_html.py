from __future__ import annotations

import dataclasses
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ampscope.report import html
from ampscope.report.model import Report, Timeline
from ampscope.report.redacted import redacted
from tests.report.handmade import SECRET, redactor
from tests.report.hostile import hostile

if TYPE_CHECKING:
    from playwright.sync_api import Browser

VOID = {"meta", "br", "hr", "line", "rect", "path", "circle"}
TAGS = {"html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "h3", "h4", "p", "dl", "div", "dt", "dd",
        "nav", "a", "article", "span", "b", "code", "pre", "table", "caption", "thead", "tbody", "tr", "th", "td",
        "figure", "figcaption", "svg", "desc", "text", "tspan", "line", "path", "rect", "circle", "details", "summary",
        "ul", "li", "footer"}  # fmt: skip


class Page(HTMLParser):
    """Tags with their attributes, the text, and whether elements are closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_it_is_one_well_formed_page_that_needs_nothing_else(report: Report) -> None:
    said = html.render(report)
    page = Page(said)
    assert page.open == []
    assert set(page.tags) <= TAGS
    assert len(said.encode()) < html.LIMIT
    for tag, name, value in page.attributes:
        assert not name.startswith("on"), (tag, name)
        assert name not in ("src", "srcset", "action", "formaction", "data", "style", "xlink:href")
        assert name != "href" or value.startswith("#")
        assert "//" not in value
    assert not re.search(r"url\(|@import|//", said.partition("<style>")[2].partition("</style>")[0])
    assert "default-src 'none'" in said


def test_anchors_exist(report: Report) -> None:
    page = Page(html.render(report))
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    assert {value[1:] for _, name, value in page.attributes if name == "href"} <= set(ids)


def test_it_says_everything(report: Report) -> None:
    text = " ".join(Page(html.render(report)).text.split())
    for needed in (
        "AMP101 clip-before-unscale",
        "1 critical, 1 warning; steps 0–119, 4 skipped; exit status 1.",
        "scaler.unscale_(optimizer)",
        "4 diagnoses: 2 found, 1 clean, 1 not measurable.",
        "no CUDA device took part",
        "The recorder took 12 ms",
        "▲ 4 skipped steps",
        "× 1 loss value NaN or inf",
        "not verified by a re-run",
        "SELECT count(*) FROM calls;",
        "torch 2.13.0",
        "Seen, and explained by no finding",
        "RuntimeError: no",
    ):
        assert needed in text


def test_pictures_have_a_name_and_a_description(report: Report) -> None:
    page = Page(html.render(report))
    labels = [value for tag, name, value in page.attributes if (tag, name) == ("svg", "aria-label")]
    assert len(labels) == page.tags["svg"] == page.tags["desc"] == 4
    assert labels[1].startswith(
        "Loss scale, skipped steps and loss. Steps 0 to 119, loss scale from 65536 (2^16)"
    )


def test_hostile_strings_stay_text(report: Report) -> None:
    plain, broken = Page(html.render(report)), Page(html.render(hostile(report)))
    assert broken.open == []
    assert set(broken.tags) <= TAGS
    for tag in ("svg", "table", "tr", "td", "article", "a", "title", "meta", "style"):
        assert broken.tags[tag] == plain.tags[tag], tag
    assert {(tag, name) for tag, name, _ in broken.attributes} <= {
        (tag, name) for tag, name, _ in plain.attributes
    }
    assert "<script>alert(1)</script>" in broken.text
    assert "\u202e" not in broken.text


def test_redacted_report_holds_nothing_private(report: Report) -> None:
    said = html.render(redacted(report, redactor()))
    for private in ("/home/alice", "alice", SECRET, "gpu-07", "corp.example"):
        assert private not in said


def test_a_page_that_would_be_too_large_loses_what_later_findings_show(report: Report) -> None:
    many = dataclasses.replace(report, findings=report.findings * 100)
    full = html.render(many, limit=10**9)
    cut = html.render(many, limit=len(full.encode()) - 1)
    assert len(cut) < len(full)
    assert full.count('<article class="finding') == 200
    assert cut.count('<article class="finding') == 100
    assert cut.count("<li>AMP101 clip-before-unscale (critical)") == 50


def test_no_report_is_larger_than_the_limit(report: Report) -> None:
    monster = hostile(dataclasses.replace(report, findings=report.findings * 400, tables=report.tables * 3))
    said = html.render(monster)
    assert len(said.encode()) < html.LIMIT
    assert Page(said).open == []


@pytest.mark.browser
def test_a_browser_asks_for_nothing_and_complains_of_nothing(
    report: Report, tmp_path: Path, browser: Browser
) -> None:
    path = tmp_path / "report.html"
    path.write_text(html.render(report), encoding="utf-8")
    told: list[str] = []
    grounds = set()
    for scheme, width in (("light", 1100), ("dark", 1100), ("light", 390)):
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
        page.on("console", lambda message: told.append(message.text))
        page.on("request", lambda request: told.append(request.url))
        page.goto(path.as_uri())
        grounds.add((scheme, page.evaluate("getComputedStyle(document.body).backgroundColor")))
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.close()
    assert set(told) == {path.as_uri()}
    assert len(grounds) == 2


def test_a_run_of_which_nothing_is_known(report: Report) -> None:
    empty = dataclasses.replace(
        report,
        findings=(),
        facts=(),
        timeline=Timeline(),
        skips=(),
        gradients_over_steps=None,
        gradients_by_tensor=None,
        tables=(),
        events=None,
        symptoms=(),
        crash="",
    )
    page = Page(html.render(empty))
    assert page.tags["svg"] == 0
    assert "No step was recorded." in page.text
    assert "No gradient was recorded at the range level." in page.text
