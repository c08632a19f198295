"""What happens when the address changes: clientside callbacks keep controls and address in step, the server renders.

Two server callbacks only: one builds the skeleton of a page, one fills a part of it. Both read nothing but the
address, so any view can be linked to.
"""

from __future__ import annotations

import sys
import traceback
from typing import Any

import dash
from dash import ALL, MATCH, ClientsideFunction, Dash, Input, Output, State, html
from dash.exceptions import PreventUpdate

from ampscope.app import shell
from ampscope.app.blocks import notice
from ampscope.app.page import Page, Part
from ampscope.app.pages import PAGES
from ampscope.app.runs import Context, RunStore
from ampscope.app.state import View
from ampscope.errors import AmpscopeError

LIVE_MS = 4000
"""How often a page of a live run looks for new rows."""

PATIENCE = 0.3
"""Seconds that a request waits for the diagnosis of a run. Most runs need no more."""


def register(app: Dash, runs: RunStore) -> None:
    """Adds every callback to `app`."""
    _register_clientside(app)

    @app.callback(  # type: ignore[untyped-decorator]
        Output("header-run", "children"),
        Output("skeleton", "children"),
        Output("rendered", "data"),
        Output("tick", "disabled"),
        Output({"type": "nav-count", "path": ALL}, "children"),
        Input("view", "data"),
        State("rendered", "data"),
        State({"type": "nav-count", "path": ALL}, "id"),
    )
    def build(
        view: dict[str, Any] | None, before: dict[str, Any] | None, counts: list[dict[str, str]]
    ) -> Any:
        with runs.serving():
            return skeleton(runs, view or {}, before or {}, [c["path"] for c in counts])

    @app.callback(  # type: ignore[untyped-decorator]
        Output({"type": "part", "name": MATCH}, "children"),
        Output({"type": "again", "name": MATCH}, "disabled"),
        Input("rendered", "data"),
        Input({"type": "again", "name": MATCH}, "n_intervals"),
        State({"type": "part", "name": MATCH}, "id"),
    )
    def fill(rendered: dict[str, Any] | None, again: int | None, id: dict[str, str]) -> Any:
        if not rendered or "path" not in rendered:
            return dash.no_update, dash.no_update
        view = View.parse(rendered["path"], rendered["search"])
        content, settled = attempt(runs, view, id["name"])
        if settled and id["name"] in ("/verdict", "findings/list"):
            dash.set_props({"type": "nav-count", "path": "/findings"}, {"children": count_of(runs, view)})
        return content, settled


def page_of(view: View) -> Page | None:
    return next((page for page in PAGES if page.slug == view.slug), None)


def context_of(runs: RunStore, view: View) -> Context:
    """Raises AmpscopeError when the run cannot be read."""
    run = runs.get(runs.name_of(view))
    return Context(run, run.source(view), view, runs)


def attempt(runs: RunStore, view: View, name: str) -> tuple[Any, bool]:
    """(content of a part or no update, whether that is the last word): a part that shows the diagnosis is asked for
    again until the diagnosis is made, so that it holds no connection and no thread of the server meanwhile."""
    settled = True
    try:
        with runs.serving():
            context = context_of(runs, view)
            part = _part(page_of(view), context, name)
        if part is not None and part.judged:
            if context.run.judge.wait(PATIENCE) is None:
                return dash.no_update, False
            settled = context.run.judge.settled
    except Exception:
        settled = True  # `fill_part` meets it again, and says it
    with runs.serving():
        return fill_part(runs, view, name), settled


def fill_part(runs: RunStore, view: View, name: str) -> Any:
    """The content of one part. Never raises: what goes wrong is said in the part."""
    page = page_of(view)
    try:
        context = context_of(runs, view)
        part = _part(page, context, name)
        return dash.no_update if part is None else part.render(context)
    except AmpscopeError as error:
        return notice("This cannot be shown", str(error), "error")
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        return notice("This could not be computed", f"{type(error).__name__}: {error}", "error")


def _part(page: Page | None, context: Context, name: str) -> Part | None:
    if page is None:
        return None
    return next((part for part in page.parts(context) if f"{page.slug}/{part.name}" == name), None)


def skeleton(runs: RunStore, data: dict[str, Any], before: dict[str, Any], nav: list[str]) -> Any:
    """Header, page without content, what is rendered, whether the clock stands still, counts in the navigation."""
    view = View.parse(data.get("path"), data.get("search"))
    page = page_of(view)
    try:
        context = context_of(runs, view)
        if context.run.live and data.get("ticks") != before.get("ticks"):
            context.run.refresh()
    except AmpscopeError as error:
        sorry = notice("This run cannot be read", str(error), "error")
        return shell.header_run(runs, view, None), sorry, {"key": "error"}, True, [""] * len(nav)
    key = _key(context, page)
    shown = {
        "path": data.get("path"),
        "search": data.get("search"),
        "version": context.run.version,
        "key": key,
    }
    if all(before.get(k) == v for k, v in shown.items()):
        raise PreventUpdate
    rendered = {
        **shown,
        "ticks": data.get("ticks"),
        "run": context.run.name,
        "title": f"{page.title if page else 'Not found'} · {context.run.name} · ampscope",
    }
    counts = [count_of(runs, view) if path == "/findings" else "" for path in nav]
    header = shell.header_run(runs, view, context)
    if key == before.get("key"):
        return header, dash.no_update, rendered, not context.run.live, counts
    if page is None:
        body: Any = notice("There is no such page", "Choose one at the left.", "error")
    else:
        body = shell.page_skeleton(page, context)
    return header, body, rendered, not context.run.live, counts


def _key(context: Context, page: Page | None) -> str:
    """Changes when the controls of the page have to be built anew."""
    view = context.view
    parts = [view.path, context.run.name, view.get("process"), str(context.run.trace.integrity.sound)]
    parts += [view.get(k) for k in (page.skeleton_keys if page else ())]
    return "|".join(parts)


def count_of(runs: RunStore, view: View) -> str:
    """The number of faults, once they are known: a diagnosis is not made for the sake of a badge."""
    try:
        known = runs.get(runs.name_of(view)).judge.known
    except AmpscopeError:
        return ""
    faults = known.at_or_above("warning") if known is not None else ()
    return str(len(faults)) if faults else ""


def _register_clientside(app: Dash) -> None:
    def client(function: str, *dependencies: Any) -> None:
        app.clientside_callback(ClientsideFunction("ampscope", function), *dependencies)

    controls = {"type": "ctl", "key": ALL}
    defaults = State({"type": "defaults", "of": ALL}, "data")
    client(
        "view",
        Output("view", "data"),
        Input("url", "pathname"),
        Input("url", "search"),
        Input("tick", "n_intervals"),
        State("view", "data"),
    )
    client(
        "control",
        Output("sink-control", "children"),
        Input(controls, "value"),
        State(controls, "id"),
        defaults,
        State("rendered", "data"),
    )
    client(
        "follow",
        Output(controls, "value"),
        Input("url", "search"),
        Input("rendered", "data"),
        State(controls, "id"),
        State(controls, "value"),
        defaults,
    )
    for kind in ("pick", "whatif-history"):
        figures = {"type": kind, "of": ALL}
        client(
            "pick", Output(f"sink-{kind}", "children"), Input(figures, "clickData"), State(figures, "figure")
        )
    links = {"type": "nav", "path": ALL}
    client(
        "nav",
        Output(links, "href"),
        Output(links, "active"),
        Input("url", "pathname"),
        Input("url", "search"),
        State(links, "id"),
    )
    client("burger", Output("shell", "navbar"), Input("burger", "opened"), State("shell", "navbar"))
    client(
        "copyLink", Output("copy-link", "children"), Input("copy-link", "n_clicks"), State("rendered", "data")
    )
    client("title", Output("sink-title", "children"), Input("rendered", "data"))
    choices = (Input(controls, "value"), State(controls, "id"))
    client(
        "whatifTensor",
        Output({"type": "whatif-history", "of": MATCH}, "figure"),
        Output({"type": "whatif-spectrum", "of": MATCH}, "figure"),
        Output({"type": "whatif-numbers", "of": MATCH}, "children"),
        Output({"type": "whatif-formats", "of": MATCH}, "children"),
        Input({"type": "whatif-data", "of": MATCH}, "data"),
        *choices,
    )
    client(
        "whatifModel",
        Output({"type": "window-figure", "of": MATCH}, "figure"),
        Output({"type": "window-advice", "of": MATCH}, "children"),
        Input({"type": "window-data", "of": MATCH}, "data"),
        *choices,
    )
    client(
        "replay",
        Output({"type": "replay-figure", "of": MATCH}, "figure"),
        Output({"type": "replay-numbers", "of": MATCH}, "children"),
        Output({"type": "replay-words", "of": MATCH}, "children"),
        Output({"type": "replay-back", "of": MATCH}, "disabled"),
        Input({"type": "replay-data", "of": MATCH}, "data"),
        *choices,
    )
    client(
        "replayBack",
        Output("sink-replay", "children"),
        Input({"type": "replay-back", "of": ALL}, "n_clicks"),
        State({"type": "replay-data", "of": ALL}, "data"),
    )
    slider = {"type": "slider", "key": ALL}
    client(
        "slide",
        Output("sink-slide", "children"),
        Input(slider, "value"),
        *(State(controls, p) for p in ("value", "id")),
    )
    client("knob", Output("sink-knob", "children"), *choices, State(slider, "value"))


SINKS = ("control", "pick", "whatif-history", "title", "slide", "knob", "replay")
"""Outputs of callbacks that only act."""


def root() -> html.Div:
    """Where `SINKS` hang, hidden."""
    return html.Div([html.Span(id=f"sink-{name}") for name in SINKS], hidden=True)
