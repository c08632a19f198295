from __future__ import annotations

from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from ampscope.report.markup import Markup, join, preformatted, tag
from ampscope.report.text import clean


class Seen(HTMLParser):
    """Start tags, attributes and text of a piece of HTML."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


@given(st.text())
def test_a_string_never_becomes_a_tag_or_an_attribute(text: str) -> None:
    seen = Seen(tag("p", text, title=text))
    assert seen.tags == ["p"]
    assert seen.attributes == [("title", clean(text))]
    assert seen.text.strip() == clean(text).strip()


def test_markup_goes_in_as_it_is_and_strings_are_escaped() -> None:
    assert tag("p", Markup("<b>x</b>"), "<i>", None, 3) == "<p><b>x</b>&lt;i&gt;3</p>"
    assert join("a & b ", Markup("<br/>")) == "a &amp; b <br/>"


def test_attributes() -> None:
    assert tag("rect", x=1.5, width=2.0, class_="a", stroke_width=None, open=True) == (
        '<rect x="1.5" width="2" class="a" open=""/>'
    )


def test_preformatted_escapes() -> None:
    assert preformatted("<a>\n&", "k") == '<pre class="k">&lt;a&gt;\n&amp;</pre>'
