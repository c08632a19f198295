"""Pieces of the HTML report: tables, lists, sentences with code, diffs. Every foreign string is escaped."""

from __future__ import annotations

from collections.abc import Sequence

from ampscope.report import blocks, text
from ampscope.report.markup import Markup, join, preformatted, tag
from ampscope.report.mdtext import words
from ampscope.report.model import Kind, Table, Value

CUT = 2000
"""Characters of one foreign text; a page has room for a long message, not for a log."""


def sentence(content: str) -> Markup:
    """A sentence whose names, calls and files are set as code."""
    parts: list[Markup | str] = []
    for i, (head, body, tail, is_code) in enumerate(words(text.shorten(text.clean(content), CUT))):
        gap = " " if i else ""
        parts.append(join(gap + head, tag("code", body) if is_code else body, tail))
    return join(*parts)


def code(content: str) -> Markup:
    """A name or a command."""
    return tag("code", text.shorten(content, CUT))


def table(shown: Table) -> Markup:
    """A table of the model with its title as caption."""
    head = [
        tag("th", c.name, scope="col", class_="n" if blocks.is_number(c.kind) else None)
        for c in shown.columns
    ]
    body = [
        tag("tr", *(_cell(c.kind, v) for c, v in zip(shown.columns, row, strict=True))) for row in shown.rows
    ]
    more = shown.total - len(shown.rows)
    caption = join(shown.title, tag("span", sentence(shown.note), class_="note") if shown.note else None)
    note = tag("p", f"… and {text.plural(more, 'more row')}.", class_="sub") if more > 0 else None
    return join(
        tag(
            "div",
            _grid(caption, head, body),
            class_="scroll",
            tabindex=0,
            role="region",
            aria_label=shown.title,
        ),
        note,
    )


def rows(
    title: str, header: Sequence[str], content: Sequence[Sequence[Markup | str]], right: Sequence[int] = ()
) -> Markup:
    """A table of finished cells; `right` lists the columns that hold numbers."""
    head = [tag("th", name, scope="col", class_="n" if i in right else None) for i, name in enumerate(header)]
    body = [
        tag("tr", *(tag("td", cell, class_="n" if i in right else None) for i, cell in enumerate(row)))
        for row in content
    ]
    return tag("div", _grid(title, head, body), class_="scroll", tabindex=0, role="region", aria_label=title)


def _grid(title: str | Markup, head: Sequence[Markup], body: Sequence[Markup]) -> Markup:
    return tag("table", tag("caption", title), tag("thead", tag("tr", *head)), tag("tbody", *body))


def _cell(kind: Kind, content: Value) -> Markup:
    if isinstance(content, str):
        short = text.shorten(content, 300)
        return tag("td", sentence(short) if kind == "text" else code(short))
    return tag("td", blocks.value(kind, content), class_="n" if blocks.is_number(kind) else None)


def key_values(pairs: Sequence[tuple[str, str]]) -> Markup:
    """A list of name and content."""
    return tag(
        "dl", *(join(tag("dt", name), tag("dd", code(content))) for name, content in pairs), class_="kv"
    )


def bullets(items: Sequence[str]) -> Markup:
    """A list of sentences."""
    return tag("ul", *(tag("li", sentence(item)) for item in items))


def diff(content: str) -> Markup:
    """A unified diff; added and removed lines are coloured and keep their sign."""
    lines = text.clean_block(content, max_lines=80).split("\n")
    return tag("pre", *(tag("span", _keep(line), class_=_kind(line)) for line in lines))


def _kind(line: str) -> str:
    if line.startswith(("---", "+++")):
        return "ctx"
    return {"+": "add", "-": "del"}.get(line[:1], "ctx")


def _keep(line: str) -> Markup:
    return Markup(preformatted(line or " ")[len("<pre>") : -len("</pre>")])


def more(summary: str, *content: Markup) -> Markup:
    """What is folded away until it is asked for."""
    return tag("details", tag("summary", summary), *content)
