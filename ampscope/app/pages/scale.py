"""The loss scale: its course inside the safe band, who broke each skipped step, the scaler's policy."""

from __future__ import annotations

from typing import Any

import pandas as pd
from dash import html

from ampscope.app import replay, tables, whatif
from ampscope.app.blocks import facts, graph, notice
from ampscope.app.figures import course
from ampscope.app.figures.base import power
from ampscope.app.page import Page, Part
from ampscope.app.queries import steps, tensors
from ampscope.app.runs import Context
from ampscope.report.text import number, share


def _course(context: Context) -> Any:
    scale = steps.scale(context.src)
    if scale.empty:
        return notice(
            "This run has no loss scale",
            "No enabled GradScaler took part in it. Float32 and bfloat16 need none; float16 does.",
        )
    src = context.src
    floor, lost = whatif.observed_floor(context)
    limits, floors = tensors.limits(src), tensors.floors(src)
    figure = course.scale_window(scale, steps.skips(src), limits, floors, floor)
    shown = graph(figure, "Loss scale over steps inside the band of scales that fit the gradients.")
    if limits.empty and floors.empty:
        text = "There is no band: no gradient that is finite and not zero was read in this run."
        return [shown, html.P(text, className="subtitle")]
    if lost is None:
        return shown
    text = f"{share(lost)} of the recomputed backward results became zero at the recorded scale: the band is above it."
    return [shown, html.P(text, className="subtitle")]


def _skips(context: Context) -> Any:
    rows = steps.blame(context.src)
    if rows.empty and not steps.span(context.src)[2]:
        return notice("No step was recorded", "The script ended before its first optimizer step.")
    if rows.empty:
        return notice("No step was skipped", "Every optimizer step of the run was taken.")
    rows = rows.assign(
        link=[_link(context, name, step) for name, step in zip(rows["culprit"], rows["step"], strict=True)]
    )
    columns = [
        tables.Col("step", "step", "count", 70),
        tables.Col("scale", "scale", "power", 136),
        tables.Col(
            "culprit", "first bad gradient", link="link", tip="In backward order: the one nearest the loss."
        ),
        tables.Col("tensors", "bad", "count", 66, tip="Gradients that were not finite."),
        tables.Col("nan", "NaN", "count", 76, tip="Elements of them."),
        tables.Col("inf", "inf", "count", 76, tip="Elements of them."),
        tables.Col("stale", "bad before", width=104, tip="It was not finite already when backward began."),
    ]
    return tables.grid(rows, columns, "Skipped steps and the gradient that caused each")


def _link(context: Context, name: object, step: int) -> str:
    return context.view.link("/gradients", tensor=name, at=str(step)) if isinstance(name, str) else ""


def _policy(context: Context) -> Any:
    rows = steps.policy(context.src)
    if rows.empty:
        return notice("No GradScaler was recorded")
    return [facts(_facts(row)) for _, row in rows.iterrows()]


def _facts(row: pd.Series) -> list[tuple[str, str]]:
    updates = int(row["updates"]) or 1
    return [
        ("scaler", str(row["scaler"])),
        ("initial scale", power(_float(row["init_scale"]))),
        ("last scale", power(_float(row["last"]))),
        ("range", f"{power(_float(row['lowest']))} … {power(_float(row['highest']))}"),
        (
            "growth",
            f"× {number(_float(row['growth_factor']))} after {number(_float(row['growth_interval']))} good steps",
        ),
        ("backoff", f"× {number(_float(row['backoff_factor']))}"),
        ("skipped", f"{int(row['skipped'])} of {updates} steps ({share(int(row['skipped']) / updates)})"),
    ]


def _float(value: Any) -> float | None:
    return None if pd.isna(value) else float(value)


def _parts(context: Context) -> list[Part]:
    return [
        Part(
            "course",
            _course,
            "Loss scale in its safe band",
            "Inside the green band nothing overflows and at most 1 % of the nonzero gradients is flushed.",
            height=380,
        ),
        Part(
            "replay",
            replay.view,
            "Replay with another policy",
            "What GradScaler would have done with these settings, over the largest gradients of this run.",
            height=560,
            controls=replay.controls,
        ),
        Part(
            "skips",
            _skips,
            "Skipped steps",
            "Newest first. The gradient nearest the loss is where backward went bad.",
            width=8,
            height=220,
        ),
        Part("policy", _policy, "Policy", width=4, height=220),
    ]


PAGE = Page(
    slug="scale",
    title="Scale",
    icon="scale",
    lead="Where the loss scale went, where it could have gone, and what stopped it.",
    parts=_parts,
)
