"""Foreign strings as GitHub-flavoured Markdown that cannot break the page, ping a person or link an issue."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ampscope.report.text import clean, clean_block

_PLAIN_WORD = re.compile(r"[\w\-+=.,;:!?()'\"%/–—…≥≤≠×·±→Δ^°µ≈√∞²]*\Z")
_NAME = re.compile(r"_|::|:\w+:|://|www\.|[A-Za-z]{2}\.[A-Za-z0-9]|[A-Za-z0-9]\.[A-Za-z]{2}|\w\(\)")
"""A word that is code or that GitHub would turn into something else: a name, a call, a link, an emoji."""

_QUOTED = re.compile(r"([(\"']?)`([^`]*[^`\s][^`]*)`([.,;:!?)\"'…]*)")
"""A word, or several, that the writer of the sentence has already set as code."""

_TOKEN = re.compile(r"[(\"']?`[^`]*[^`\s][^`]*`[.,;:!?)\"'…]*(?=\s|\Z)|\S+")
_BLOCK_START = re.compile(r"(?:\d+[.)]|[-+=:]+)\Z")
_TRAILING = ".,;:!?)'\"…"


def code(text: str) -> str:
    """`text` as a code span outside a table."""
    shown = clean(text)
    if not shown.strip():
        return "–"
    fence = "`" * (_longest_run(shown) + 1)
    pad = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def inline(text: str) -> str:
    """A sentence: words that hold anything but letters, digits and plain punctuation become code spans.

    Neither Markdown nor GitHub's mention, issue, emoji, maths and link filters look into code spans, and
    module names and calls read better in them.
    """
    return " ".join(
        f"{head}{code(body) if is_code else body}{tail}" for head, body, tail, is_code in words(text)
    )


def words(text: str) -> list[tuple[str, str, str, bool]]:
    """The words of a sentence as (bracket before, word, punctuation after, whether it is code)."""
    found = _TOKEN.findall(clean(text))
    return [_word(word, first=i == 0) for i, word in enumerate(found)]


def _word(word: str, first: bool) -> tuple[str, str, str, bool]:
    quoted = _QUOTED.fullmatch(word)
    if quoted:
        return quoted[1], quoted[2].strip(), quoted[3], True
    if first and _BLOCK_START.match(word):
        return "", word, "", True
    if _PLAIN_WORD.match(word) and not _NAME.search(word):
        return "", word, "", False
    opens = word.startswith("(") and ("(" in word[1:] or word.count("(") >= word.count(")"))
    head = "(" if opens else ""
    body, tail = word[len(head) :], ""
    while body and body[-1] in _TRAILING and not (body[-1] == ")" and body.count("(") >= body.count(")")):
        tail = body[-1] + tail
        body = body[:-1]
    return (head, body, tail, True) if body else ("", word, "", True)


def cell(markdown: str) -> str:
    """Finished inline Markdown as a table cell: pipes must not end the cell, also not after a backslash."""
    return re.sub(r"(\\*)\|", lambda m: m[1] + "\u2223" if m[1] else r"\|", markdown).replace("\n", " ")


def table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool] = ()) -> str:
    """A table of finished inline Markdown; `right` says which columns are numbers."""
    rule = ["---:" if i < len(right) and right[i] else "---" for i in range(len(header))]
    lines = [_row([cell(c) for c in header]), _row(rule), *(_row([cell(c) for c in row]) for row in rows)]
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def fence(text: str, language: str = "", max_lines: int = 60) -> str:
    """A fenced block that its content cannot close."""
    body = clean_block(text, max_lines=max_lines)
    ticks = "`" * max(3, _longest_run(body) + 1)
    return f"{ticks}{language}\n{body}\n{ticks}"


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)
