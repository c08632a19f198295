"""Ops: dtype shares per module, the table of ops, casts, and where values stopped being finite."""

from __future__ import annotations

from typing import Any

import pandas as pd
from dash import html

from ampscope.app import tables
from ampscope.app.blocks import graph, notice
from ampscope.app.figures import bars
from ampscope.app.page import Control, Page, Part, chosen
from ampscope.app.queries import ops, order
from ampscope.app.runs import Context
from ampscope.report.text import size

EMPTY = (
    "No census step was recorded. The census runs on steps 1, 2, 8, 32, 128, … of a run at the default level; "
    "`--level census` makes sure of it."
)
BY = (("host_s", "time"), ("flops", "FLOPs"), ("calls", "calls"))


def _step_control(context: Context) -> Control:
    rows = ops.segments(context.src)
    steps = sorted({int(s) for s in rows["step"]})
    return Control(
        "step", "Census step", tuple((str(s), f"step {s}") for s in steps), str(steps[-1]) if steps else ""
    )


def _by_control(context: Context) -> Control:
    return Control("by", "Share of", BY, "host_s", "segmented")


def _controls(context: Context) -> list[Control]:
    return [] if ops.segments(context.src).empty else [_step_control(context), _by_control(context)]


def _step(context: Context) -> int | None:
    value = chosen(_step_control(context), context)
    return int(value) if value else None


def _shares(context: Context) -> Any:
    step = _step(context)
    if step is None:
        return notice("No ops were recorded", EMPTY)
    rows = ops.dtypes_by_module(context.src, step)
    if rows.empty:
        return notice("No floating-point work was recorded in this step")
    by = chosen(_by_control(context), context)
    names = order.by_module(context.src, rows["module"].unique())
    rows = rows.assign(**{by: rows[by].fillna(0.0)})
    figure = bars.dtype_shares(rows, names, by)
    return graph(figure, f"Share of each dtype in the work of each module at step {step}, in forward order.")


def _table(context: Context) -> Any:
    step = _step(context)
    if step is None:
        return notice("No ops were recorded", EMPTY)
    columns = [
        tables.Col("op", "op", width=150),
        tables.Col("given", "in", width=92),
        tables.Col("made", "out", width=88),
        tables.Col("module", "module", width=105),
        tables.Col("phase", "phase", width=88),
        tables.Col("place", "line", width=200),
        tables.Col("calls", "calls", "count", 70),
        tables.Col(
            "host_s",
            "host time",
            "seconds",
            102,
            tip="Under the dispatch mode: an upper bound, for ranking only.",
        ),
        tables.Col("flops", "FLOPs", "si", 84),
        tables.Col("out_bytes", "written", "bytes", 92),
        tables.Col("out_amax", "largest |out|", "number", 124),
        tables.Col("nonfinite", "NaN or inf", "count", 108),
        tables.Col("shapes", "shapes"),
    ]
    return tables.grid(ops.table(context.src, step), columns, f"Ops of step {step}", height=480)


def _casts(context: Context) -> Any:
    step = _step(context)
    rows = None if step is None else ops.casts(context.src, step)
    if rows is None or rows.empty:
        return notice(
            "No cast was recorded", EMPTY if step is None else "Nothing changed its dtype in this step."
        )
    total = int(rows["bytes"].fillna(0).sum())
    repeated = int((rows["calls"] > 1).sum())
    columns = [
        tables.Col("source", "what is cast"),
        tables.Col("module", "module"),
        tables.Col("given", "from", width=90),
        tables.Col("made", "to", width=90),
        tables.Col("kind", "by", width=95),
        tables.Col("phase", "phase", width=95),
        tables.Col("calls", "casts", "count", 80),
        tables.Col("bytes", "bytes", "bytes", 95),
        tables.Col("host_s", "host time", "seconds", 100),
        tables.Col("place", "line", width=210),
    ]
    text = (
        f"{int(rows['calls'].sum())} casts write {size(total)}; {repeated} of {len(rows)} kinds are repeated."
    )
    return [
        html.P(text, className="subtitle"),
        tables.grid(rows, columns, "Casts of this step", height=340),
    ]


def _transitions(context: Context) -> Any:
    rows = ops.transitions(context.src)
    if rows.empty:
        return notice(
            "No recorded op turned finite inputs into NaN or inf",
            "Of the census steps only: an op of another step is not seen here.",
        )
    rows = rows.assign(
        survives=[_survives(v) for v in rows["shadow_nonfinite"]],
    )
    columns = [
        tables.Col("step", "step", "count", 75),
        tables.Col("op", "op", width=170),
        tables.Col("module", "module"),
        tables.Col("phase", "phase", width=95),
        tables.Col("place", "line", width=210),
        tables.Col("given", "in", width=100),
        tables.Col("made", "out", width=90),
        tables.Col("in_amax", "largest |in|", "number", 110),
        tables.Col("out_nonfinite", "NaN or inf", "count", 100),
        tables.Col("survives", "in float32", width=120),
    ]
    return tables.grid(rows, columns, "Ops whose inputs were finite and whose output was not")


def _survives(nonfinite: Any) -> str:
    """Whether float32 would have held what half precision did not: from the recomputed op."""
    if pd.isna(nonfinite):
        return "not recomputed"
    return "finite" if nonfinite == 0 else "not finite either"


def _parts(context: Context) -> list[Part]:
    return [
        Part(
            "shares",
            _shares,
            "Precision of each module",
            "Matmul-like work where there is some in the module, otherwise all of its ops. Casts are left out.",
            height=360,
        ),
        Part(
            "transitions", _transitions, "Where values stopped being finite", "First ones first.", height=120
        ),
        Part(
            "table", _table, "Ops", "By op, dtypes, module, phase and line; most host time first.", height=480
        ),
        Part("casts", _casts, "Casts", height=340),
    ]


PAGE = Page(
    slug="ops",
    title="Ops",
    icon="ops",
    lead="What really ran, in which precision, in which module, from which line.",
    parts=_parts,
    controls=_controls,
    skeleton_keys=(),
)
