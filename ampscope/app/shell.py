"""The frame round every page: header, navigation, cards without content. Computes nothing about the run."""

from __future__ import annotations

from typing import Any

from dash import dcc, html

from ampscope.app import ui
from ampscope.app.page import Control, Page, Part, chosen
from ampscope.app.pages import PAGES
from ampscope.app.runs import Context, RunStore
from ampscope.app.state import View
from ampscope.report.text import clean

STATES = {
    "live": ("recording", "live"),
    "complete": ("complete", "complete"),
    "cut_off": ("cut off", "cut"),
}
"""State of a run: what it is called here, and its style."""

TILE = 3
"""Columns of a part that stays beside another on a narrow screen."""

AGAIN_MS = 700
"""How often a part asks whether the diagnosis that it waits for is made."""


def layout(sinks: Any, live_ms: int) -> Any:
    """The whole page, before anything of a run is known."""
    header = html.Div(
        [
            ui.burger(),
            dcc.Link([html.Span(className="logo"), html.Span("ampscope")], href="/", className="brand"),
            html.Div(id="header-run", className="header-run"),
            html.Div(
                [
                    ui.button("Copy link", "copy-link", "link"),
                    ui.theme_toggle(),
                ],
                className="header-tools",
            ),
        ],
        className="header",
    )
    navigation = html.Div([ui.nav_link(p.path, p.title, p.icon) for p in PAGES])
    stores = [
        dcc.Location(id="url", refresh=False),
        dcc.Store(id="view"),
        dcc.Store(id="rendered"),
        dcc.Interval(id="tick", interval=live_ms, disabled=True),
    ]
    main = html.Div([html.Div(id="skeleton"), sinks], id="main", tabIndex="-1")
    skip = html.A("Skip to the page", href="#main", className="skip-link")
    return ui.provider([*stores, skip, ui.shell(header, navigation, main)])


def header_run(runs: RunStore, view: View, context: Context | None) -> Any:
    """Which run is shown and in what state; with a choice where there are several."""
    name = runs.name_of(view)
    pieces: list[Any] = []
    controls: dict[str, str] = {}
    if len(runs.names) > 1:
        pieces.append(ui.run_select(runs.names, name))
        controls["run"] = runs.names[0]
    else:
        pieces.append(html.Span(clean(name), className="run-name", title=clean(name)))
    if context is not None:
        pieces += _state(context)
        processes = context.run.processes()
        if len(processes) > 1:
            labels = [(f"{r}.{p}", process_name(r, p)) for r, p in processes]
            pieces.append(ui.process_select(labels, f"{context.src.rank}.{context.src.proc}"))
            controls["process"] = labels[0][0]
    pieces.append(dcc.Store(id={"type": "defaults", "of": "header"}, data=controls))
    return pieces


def _state(context: Context) -> list[Any]:
    word, style = STATES.get(context.run.trace.info.state, ("unknown", "cut"))
    marks: list[Any] = [html.Span([html.Span(className="dot"), word], className=f"state state-{style}")]
    if not context.run.trace.integrity.sound:
        href = context.view.link("/run")
        marks.append(
            dcc.Link("damaged", href=href, className="state state-damaged", title="Some files are unreadable")
        )
    return marks


def page_skeleton(page: Page, context: Context) -> Any:
    """Title, controls and empty cards of a page."""
    controls = list(page.controls(context))
    parts = list(page.parts(context))
    head: list[Any] = [html.H1(page.title), html.P(page.lead, className="lead") if page.lead else None]
    every = [*controls, *(c for part in parts for c in part.controls(context))]
    return html.Div(
        [
            html.Div(
                [
                    html.Div([h for h in head if h is not None], className="page-title"),
                    _controls(controls, context),
                ],
                className="page-head",
            ),
            _which(context),
            html.Div([_card(page, part, context) for part in parts], className="cards"),
            dcc.Store(id={"type": "defaults", "of": "page"}, data={c.key: c.default for c in every}),
        ],
        className="page",
        id=f"page-{page.slug or 'overview'}",
    )


def process_name(rank: int, proc: int) -> str:
    """`rank 1`, or `rank 1, process 2` for one that another process of the rank came before."""
    return f"rank {rank}" + (f", process {proc}" if proc else "")


def _which(context: Context) -> Any:
    """Which process is shown, in a run of several."""
    total = len(context.run.processes())
    if total < 2:
        return None
    name = process_name(context.src.rank, context.src.proc)
    text = f" of {total} processes; another is chosen in the header. Findings and reports are of all of them."
    return html.P(["Shown: ", html.Strong(name), text], className="which")


def _controls(controls: list[Control], context: Context) -> Any:
    return html.Div([ui.control(c, chosen_value(c, context)) for c in controls], className="controls")


def chosen_value(control: Control, context: Context) -> str:
    """The value that a control starts with; a number that is none falls back on the default."""
    if control.kind not in ("scale", "number"):
        return chosen(control, context)
    try:
        value = float(context.view.get(control.key, control.default))
    except ValueError:
        return control.default
    return repr(value) if 0 < value < float("inf") else control.default


def _card(page: Page, part: Part, context: Context) -> Any:
    name = f"{page.slug}/{part.name}"
    waiting = html.Span("Running the diagnoses …", className="waiting-text") if part.judged else None
    content = html.Div(
        html.Div(waiting, className="waiting", style={"minHeight": part.height}),
        id={"type": "part", "name": name},
        className="part",
        **{"aria-live": "off"},
    )
    again = dcc.Interval(id={"type": "again", "name": name}, interval=AGAIN_MS, disabled=True)
    style = {"gridColumn": f"span {part.width}"}
    if part.bare:
        small = " tile" if part.width <= TILE else ""
        return html.Section([content, again], className="card-bare" + small, style=style)
    head: list[Any] = []
    if part.title:
        head.append(
            html.Div([html.H2(part.title), html.P(part.note, className="muted") if part.note else None])
        )
    controls = list(part.controls(context))
    if controls:
        head.append(_controls(controls, context))
    return html.Section(
        [html.Header(head, className="card-head") if head else None, content, again],
        className="card",
        style=style,
    )
