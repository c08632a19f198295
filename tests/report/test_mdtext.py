from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from ampscope.report.mdtext import cell, code, fence, inline, table
from ampscope.report.text import clean

GFM = MarkdownIt("commonmark").enable(["table", "strikethrough"])

PIECES = [
    *"ab1 `*_[]()<>!|\\&~$#@:{}-+=.\n\t'\"/;^\u202e",
    "http://x.y",
    "www.x.y",
    "@me",
    "<script>",
    "&lt;",
]
HOSTILE = st.lists(st.sampled_from(PIECES), max_size=30).map("".join)


def flat(tokens: list[Token]) -> list[Token]:
    return [t for token in tokens for t in (token, *flat(token.children or []))]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("the norm was 5.1e4, 65536 times too large", "the norm was 5.1e4, 65536 times too large"),
        ("call clip_grad_norm_ first.", "call `clip_grad_norm_` first."),
        (
            "call `scaler.unscale_(opt)`, then (decoder.norm).",
            "call `scaler.unscale_(opt)`, then (`decoder.norm`).",
        ),
        ("aten::sum in blocks.1", "`aten::sum` in `blocks.1`"),
        ("e.g. 2^-11 of it", "e.g. 2^-11 of it"),
        ("see AdamW#0 and @torch", "see `AdamW#0` and `@torch`"),
        ("1. not a list", "`1.` not a list"),
        ("- nor this", "`-` nor this"),
        ("f(x) and g()", "f(x) and `g()`"),
        ("a ``b`` `", "a ``` ``b`` ``` `` ` ``"),
    ],
)
def test_inline(text: str, shown: str) -> None:
    assert inline(text) == shown


@given(HOSTILE)
def test_a_sentence_stays_one_paragraph_of_text_and_code(text: str) -> None:
    tokens = flat(GFM.parse(f"Before {inline(text)} after"))
    assert {t.type for t in tokens} <= {"paragraph_open", "inline", "text", "code_inline", "paragraph_close"}


@given(HOSTILE)
def test_a_sentence_that_opens_a_paragraph_stays_one(text: str) -> None:
    shown = inline(text)
    if shown:
        kinds = {t.type for t in flat(GFM.parse(shown))}
        assert kinds <= {"paragraph_open", "inline", "text", "code_inline", "paragraph_close"}


@given(HOSTILE)
def test_no_character_of_a_sentence_is_lost(text: str) -> None:
    said = "".join(
        t.content for t in flat(GFM.parse(f"x {inline(text)}")) if t.type in ("text", "code_inline")
    )
    drop = str.maketrans("", "", " `")
    assert said.translate(drop) == "x" + clean(text).translate(drop)


@given(HOSTILE.filter(lambda t: clean(t).strip() != ""))
def test_code_is_one_code_span(text: str) -> None:
    children = GFM.parse(f"x {code(text)}")[1].children or []
    assert [t.type for t in children] == ["text", "code_inline"]


@given(HOSTILE, HOSTILE)
def test_a_table_keeps_its_shape(first: str, second: str) -> None:
    shown = table(["a", code("|x|")], [[inline(first), code(second)], ["1", "2"]], right=(False, True))
    tokens = GFM.parse(shown)
    assert [t.type for t in tokens].count("tr_open") == 3
    assert [t.type for t in tokens].count("td_open") == 4
    assert [t.type for t in tokens].count("th_open") == 2


def test_a_pipe_after_backslashes_does_not_end_a_cell() -> None:
    assert cell(r"a\|b") == "a\\\u2223b"
    assert cell("a|b") == r"a\|b"


@given(st.text(alphabet=st.sampled_from("`~a\n "), max_size=40))
def test_a_fence_cannot_be_closed_by_its_content(text: str) -> None:
    tokens = GFM.parse(fence(text, "diff") + "\n\nafter")
    assert [t.type for t in tokens] == ["fence", "paragraph_open", "inline", "paragraph_close"]
