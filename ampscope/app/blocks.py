"""Small pieces of pages in plain HTML components: notices, numbers, lists, diffs. All text is shown as text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import plotly.graph_objects as go
from dash import dcc, html

from ampscope.app import ui
from ampscope.app.figures.base import two_to
from ampscope.report.text import clean, clean_block

GRAPH_CONFIG = {
    "displaylogo": False,
    "responsive": True,
    # "Share chart" would offer to upload the figure to a cloud.
    "modeBarButtonsToRemove": [
        "sendChartToCloud",
        "select2d",
        "lasso2d",
        "autoScale2d",
        "zoomIn2d",
        "zoomOut2d",
    ],
    "toImageButtonOptions": {"format": "svg"},
    "showTips": False,
    "plotlyServerURL": "",
}


def graph(figure: go.Figure, about: str, id: Any = None) -> html.Div:
    """A figure with a text that says what it shows, for those who do not see it."""
    more = {} if id is None else {"id": id}
    figure.layout.uirevision = (
        about  # the same view keeps its zoom when its data is refreshed, another does not
    )
    plot = dcc.Graph(figure=figure, config=GRAPH_CONFIG, style={"height": figure.layout.height}, **more)
    return html.Div(plot, className="graph", role="figure", **{"aria-label": about})


def pickable(figure: go.Figure, key: str, axis: str, values: Sequence[Any]) -> None:
    """Makes a click choose: the parameter `key` of the address becomes the value at the clicked category of `axis`."""
    labels = list(figure.data[0][axis])
    figure.layout.meta = {"pick": {"key": key, "axis": axis, "values": list(values), "labels": labels}}


def notice(title: str, text: str = "", kind: str = "empty") -> html.Div:
    """What stands where there is nothing to draw. `kind` is empty, error or warning."""
    return html.Div(
        [
            html.Span(className=f"icon icon-{'alert' if kind != 'empty' else 'empty'} notice-icon"),
            html.Div(
                [
                    html.P(clean(title), className="notice-title"),
                    html.P(_lines(text), className="muted") if text else None,
                ]
            ),
        ],
        className=f"notice notice-{kind}",
        role="status" if kind == "empty" else "alert",
    )


def _lines(text: str) -> Any:
    return prose(text) if "\n" not in text else clean_block(text)


def stat(label: str, value: str, note: str, basis: str = "", tone: str = "") -> html.Div:
    """One large number with what it rests on. `tone` is "", good, warning or critical."""
    head = [html.Span(label, className="stat-label")]
    if basis:
        head.append(html.Span(basis, className="basis"))
    return html.Div(
        [
            html.Div(head, className="stat-head"),
            html.Div(value, className="stat-value"),
            html.Div(unbroken(note), className="stat-note"),
        ],
        className=f"stat {'tone-' + tone if tone else ''}",
    )


def severity_mark(severity: str) -> html.Span:
    """Severity as a word and a shape, not as a colour alone."""
    shape = {"critical": "✕", "warning": "▲", "info": "●", "healthy": "✓"}.get(severity, "●")
    return html.Span(
        [html.Span(shape, className="mark-shape", **{"aria-hidden": "true"}), severity],
        className=f"mark mark-{severity}",
    )


def facts(rows: Iterable[tuple[str, Any]]) -> html.Dl:
    """Names and values; a value that is a string is cleaned."""
    cells: list[Any] = []
    for name, value in rows:
        cells += [html.Dt(name), html.Dd(clean(value) if isinstance(value, str) else value)]
    return html.Dl(cells, className="facts")


def code(text: str, copy: bool = True) -> html.Div:
    """A block of text in a fixed pitch, to be copied."""
    shown = clean_block(text, max_lines=200, max_line=2000)
    children: list[Any] = [html.Pre(html.Code(shown), className="code", tabIndex="0")]
    if copy:
        children.append(html.Div(ui.copy_button(shown), className="code-copy"))
    return html.Div(children, className="code-block")


def diff(text: str) -> html.Div:
    """A unified diff with its lines coloured; the signs stay, so colour is not needed."""
    shown = clean_block(text, max_lines=200, max_line=2000)
    lines: list[Any] = []
    for row in shown.split("\n"):
        kind = {"+": "add", "-": "del", "@": "at"}.get(row[:1], "")
        lines.append(html.Span(row + "\n", className=f"diff-{kind}" if kind else ""))
    return html.Div(
        [
            html.Pre(lines, className="code", tabIndex="0"),
            html.Div(ui.copy_button(shown), className="code-copy"),
        ],
        className="code-block",
    )


def prose(text: str) -> list[Any]:
    """Text with `code` between backticks set in a fixed pitch, and 2^16 as 2¹⁶. Nothing else in it means anything."""
    pieces = clean(text).split("`")
    if len(pieces) % 2 == 0:
        return [_raised(clean(text))]
    return [html.Code(piece) if i % 2 else _raised(piece) for i, piece in enumerate(pieces) if piece]


def _raised(text: str) -> str:
    return re.sub(r"\b2\^(-?[0-9]+)\b", lambda found: two_to(int(found[1])), text)


def unbroken(text: str) -> str:
    """A number and its unit stay on one line."""
    return re.sub(r"(?<=\d) (?=(?:%|s|ms|µs|min|h|B|KiB|MiB|GiB)(?!\w))", "\u00a0", text)


def chips(items: Sequence[str], kind: str = "") -> html.Div:
    return html.Div([html.Span(clean(i), className=f"chip {kind}") for i in items], className="chips")


def jump(text: str, href: str, className: str = "jump") -> Any:
    """A link to another view of the dashboard."""
    return dcc.Link(clean(text), href=href, className=className)
