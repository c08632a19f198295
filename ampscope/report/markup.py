"""HTML and SVG as values: what is not already `Markup` is escaped, so no string of a trace becomes a tag."""

from __future__ import annotations

from html import escape

from ampscope.report.text import clean


class Markup(str):
    """A string that is finished HTML. Only `tag`, `join` and constants in renderers make one."""

    __slots__ = ()


Child = str | int | None
"""A child of an element: Markup goes in as it is, other strings are cleaned and escaped, None is nothing."""

_VOID = frozenset({"meta", "br", "hr", "line", "rect", "path", "circle", "polyline", "col"})


def text(value: str) -> Markup:
    """`value` as character data."""
    return Markup(escape(clean_keep_space(value), quote=True))


def clean_keep_space(value: str) -> str:
    """`clean`, but blanks at the ends stay: they separate words from neighbouring elements."""
    head = " " if value[:1] == " " else ""
    tail = " " if value[-1:] == " " and value.strip() else ""
    return head + clean(value) + tail


def join(*children: Child) -> Markup:
    """The children one after another."""
    return Markup("".join(c if isinstance(c, Markup) else text(str(c)) for c in children if c is not None))


def tag(name: str, /, *children: Child, **attributes: str | int | float | bool | None) -> Markup:
    """An element. Attribute names: a trailing underscore is dropped, the others become hyphens.

    An attribute of None or False is left out; True gives an empty one. Values are cleaned and escaped.
    """
    parts = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        attribute = key.rstrip("_").replace("_", "-")
        shown = "" if value is True else _value(value)
        parts.append(f'{attribute}="{escape(clean(shown), quote=True)}"')
    opening = " ".join(parts)
    if name in _VOID:
        return Markup(f"<{opening}/>")
    return Markup(f"<{opening}>{join(*children)}</{name}>")


def _value(value: str | int | float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def preformatted(value: str, class_: str | None = None) -> Markup:
    """A `pre` block of text that has been through `clean_block`."""
    attribute = f' class="{escape(class_)}"' if class_ else ""
    return Markup(f"<pre{attribute}>{escape(value, quote=True)}</pre>")
