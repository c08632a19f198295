"""Updates: which weights move, which round away, the ratio of update to weight against the lines of the formats."""

from __future__ import annotations

from typing import Any

import pandas as pd
from dash import html

from ampscope.app import explorer, tables
from ampscope.app.blocks import graph, notice, pickable
from ampscope.app.figures import heat, spread
from ampscope.app.page import Control, Page, Part, chosen
from ampscope.app.queries import order, steps, updates
from ampscope.app.runs import Context

SHOWN = {
    "observed": "absorbed (observed)",
    "fp16": "a float16 weight would lose (predicted)",
    "bf16": "a bfloat16 weight would lose (predicted)",
    "below_2_11": "below 2⁻¹¹ of the weight",
    "ratio": "update norm / weight norm",
}
BAR = {
    "observed": "absorbed",
    "fp16": "fp16 would lose",
    "bf16": "bf16 would lose",
    "ratio": "|Δw| / |w|",
}
"""What stands beside the colour bar, where `SHOWN` is too long."""

EMPTY = "No optimizer step was sampled in this run: it needs the range level (`ampscope run --every 1 …`)."

STATE = explorer.Explorer(
    roles=("exp_avg_sq", "exp_avg", "momentum", "update"),
    stats=("zeros", "amax"),
    empty="No optimizer state was read in this run.",
)


def _stat(context: Context) -> Control:
    rows = updates.table(context.src)
    half = not rows.empty and bool(rows["observed"].notna().any())
    options = tuple((k, v) for k, v in SHOWN.items() if k != "observed" or half)
    return Control("stat", "Shows", options, "observed" if half else "fp16", wide=True)


def _controls(context: Context) -> list[Control]:
    return [] if updates.table(context.src).empty else [_stat(context)]


def _value(rows: pd.DataFrame, stat: str) -> pd.Series:
    if stat == "ratio":
        return rows["ratio"]
    of = rows["of_observed"] if stat == "observed" else rows["moved"]
    return rows[stat] / of.where(of > 0)


def _heat(context: Context) -> Any:
    rows = updates.heat(context.src)
    stat = chosen(_stat(context), context)
    names = order.forward_order(context.src, rows["name"])
    shown = explorer.most_telling(rows, names, _value(rows, stat), "log2")
    rows = rows[rows["name"].isin(shown)]
    data = heat.matrix(rows, shown, _value(rows, stat))
    kind = {"ratio": "log2", "observed": "harm"}.get(stat, "part")
    figure = heat.heat(data, kind, BAR.get(stat, SHOWN[stat]), _parameter(context, names))
    pickable(figure, "param", "y", shown)
    about = f"Heat map of parameters over steps: {SHOWN[stat]}."
    return graph(figure, about, {"type": "pick", "of": "param"})


def _parameter(context: Context, names: list[str]) -> str:
    return context.view.choice("param", names)


def _names(context: Context) -> list[str]:
    return order.forward_order(context.src, updates.table(context.src)["name"])


def _parameter_control(context: Context) -> list[Control]:
    names = _names(context)
    return [Control("param", "Parameter", tuple((n, n) for n in names), names[0], wide=True)] if names else []


def _ratios(context: Context) -> Any:
    names = _names(context)
    name = _parameter(context, names)
    data = updates.ratios(context.src, name)
    if data is None:
        return notice("Nothing moved", f"No element of {name} changed in the sampled steps.")
    note = (
        f"Stored in {data.dtype}. Only elements that moved are drawn: an update below the line rounds away."
        if data.dtype in updates.HALF
        else f"Stored in {data.dtype}: the lines show where a copy in half precision would begin to lose updates."
    )
    return [
        html.P([html.Code(name), f"  {note}"], className="subtitle"),
        graph(spread.ratio_history(data), f"Histogram of update to weight ratio of {name} over steps."),
    ]


def _table(context: Context) -> Any:
    rows = updates.table(context.src)
    names = _names(context)
    rows = rows.set_index("name").reindex(names).reset_index()
    wide = ~rows["dtype"].isin(updates.HALF)
    moved = rows["moved"].where((rows["moved"] > 0) & wide)
    rows = rows.assign(
        observed_share=rows["observed"] / rows["of_observed"].where(rows["of_observed"] > 0),
        fp16_share=rows["fp16"] / moved,
        bf16_share=rows["bf16"] / moved,
        below_share=rows["below_2_11"] / moved,
        link=[context.view.link("/updates", param=n) for n in rows["name"]],
    )
    columns = [
        tables.Col("name", "parameter", link="link"),
        tables.Col("dtype", "dtype", width=84),
        tables.Col("numel", "elements", "count", 92),
        tables.Col(
            "observed_share",
            "absorbed",
            "share",
            94,
            tip="Observed: stored bits equal although the gradient was not zero.",
        ),
        tables.Col("fp16_share", "fp16 would lose", "share", 130),
        tables.Col("bf16_share", "bf16 would lose", "share", 130),
        tables.Col("below_share", "below 2⁻¹¹", "share", 102),
        tables.Col("ratio", "|Δw| / |w|", "number", 98),
        tables.Col("lr", "lr", "number", 84),
        tables.Col("nonfinite", "NaN or inf", "count", 100),
    ]
    return tables.grid(rows, columns, "Parameters and what became of their updates", height=420)


def _empty(context: Context) -> Any:
    taken = context.src.value("SELECT count(*) FROM {steps} WHERE outcome = 'stepped'")
    if not taken and steps.skip_count(context.src):
        return notice("No update was made", "Every optimizer step of this run was skipped.")
    return notice("No update was recorded", EMPTY)


def _parts(context: Context) -> list[Part]:
    empty = updates.table(context.src).empty
    cards = [Part("empty", _empty, bare=True)] if empty else _cards()
    if STATE.kinds(context):
        cards += [
            Part(
                "state",
                STATE.heat_map,
                "Optimizer state × step",
                height=420,
                controls=lambda c: [STATE.of_control(c)],
            ),
        ]
    return cards


def _cards() -> list[Part]:
    ratio = "Update to weight, element by element"
    return [
        Part("heat", _heat, "Parameter × step", "Forward order from the top.", height=420),
        Part("ratio", _ratios, ratio, height=420, controls=_parameter_control),
        Part("table", _table, "All parameters, over the whole run", height=420),
    ]


PAGE = Page(
    slug="updates",
    title="Updates",
    icon="updates",
    lead="Whether the optimizer's steps reach the weights, or round away in them.",
    parts=_parts,
    controls=_controls,
)
