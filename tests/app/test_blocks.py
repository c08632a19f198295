"""Small pieces: text stays text, nothing is told by colour alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ampscope.app import blocks
from ampscope.app.figures.base import figure
from ampscope.report.text import clean
from tests.app import walk


def test_a_figure_says_what_it_shows_and_loads_nothing() -> None:
    plot = blocks.graph(figure(120), "Loss over steps.")
    outer, inner = list(walk.nodes(plot))
    assert outer["props"]["aria-label"] == "Loss over steps."
    assert inner["props"]["config"]["plotlyServerURL"] == ""
    assert "sendChartToCloud" in inner["props"]["config"]["modeBarButtonsToRemove"]
    assert inner["props"]["style"] == {"height": 120}
    assert inner["props"]["figure"]["layout"]["uirevision"] == "Loss over steps."


def test_severities_have_words_and_shapes() -> None:
    shapes = {walk.text(blocks.severity_mark(s)) for s in ("critical", "warning", "info", "healthy")}
    assert shapes == {"✕ critical", "▲ warning", "● info", "✓ healthy"}


def test_code_between_backticks() -> None:
    pieces = walk.tree(blocks.prose("use `a < b` here"))
    assert [p if isinstance(p, str) else p["type"] for p in pieces] == ["use ", "Code", " here"]
    assert blocks.prose("an odd ` stays") == ["an odd ` stays"]


def test_powers_of_two_are_raised_outside_code() -> None:
    pieces = walk.tree(blocks.prose("from 2^-24 to 2^16, `2^14`, 12^3"))
    assert pieces[0] == "from 2⁻²⁴ to 2¹⁶, "
    assert pieces[1]["props"]["children"] == "2^14"
    assert pieces[2] == ", 12^3"


def test_a_number_stays_with_its_unit() -> None:
    shown = blocks.unbroken("median of 58 steps; 95 % are below 48.2 ms")
    assert shown == "median of 58 steps; 95\u00a0% are below 48.2\u00a0ms"


@given(st.text(max_size=60).filter(lambda text: "2^" not in text))
def test_prose_loses_no_character_but_backticks(text: str) -> None:
    shown = "".join(
        p if isinstance(p, str) else p["props"]["children"] for p in walk.tree(blocks.prose(text))
    )
    assert shown.replace("`", "") == clean(text).replace("`", "")


def test_a_diff_keeps_its_signs() -> None:
    tree = list(walk.nodes(blocks.diff("@@ -1 +1 @@\n-old\n+new\n same")))
    lines = [(n["props"].get("className"), n["props"]["children"]) for n in tree if n["type"] == "Span"]
    assert lines[:4] == [
        ("diff-at", "@@ -1 +1 @@\n"), ("diff-del", "-old\n"), ("diff-add", "+new\n"), ("", " same\n"),
    ]  # fmt: skip


def test_control_characters_are_shown_as_such() -> None:
    assert "\x1b" not in walk.text(blocks.notice("\x1b[31mred", "a\u202eb"))
    assert "\u202e" not in walk.text(blocks.notice("x", "a\u202eb"))
