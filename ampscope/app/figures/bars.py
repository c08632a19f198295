"""Bar charts: dtype shares per module, phases of the steps, times of modules and ops."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from ampscope.app import palette
from ampscope.app.figures.base import figure, label, plain
from ampscope.report.text import seconds, share

PHASE_NAMES = {
    "data": "data wait",
    "forward": "forward",
    "backward": "backward",
    "unscale": "unscale and clip",
    "optimizer": "optimizer",
    "rest": "everything else",
}


def phases(frame: pd.DataFrame, height: int = 340) -> go.Figure:
    """Seconds per step, stacked by phase. Frame as `queries.timing.phases` gives it."""
    fig = figure(height, top=34)
    width = np.maximum(1, frame["last"].to_numpy() - frame["step"].to_numpy() + 1)
    x = (frame["step"].to_numpy() + frame["last"].to_numpy()) / 2.0
    total = frame["total"].to_numpy(dtype=float)
    top = _top(total)
    unit, scale = _unit(top)
    spans = [
        f"step {a}" if a == b else f"steps {a}–{b}" for a, b in zip(frame["step"], frame["last"], strict=True)
    ]
    for phase, name in PHASE_NAMES.items():
        values = frame[phase].to_numpy(dtype=float)
        fig.add_bar(
            x=x,
            y=values * scale,
            width=width,
            name=name,
            marker={"color": palette.PHASES[phase], "line": {"width": 0}},
            customdata=[[s, seconds(float(v))] for s, v in zip(spans, values, strict=True)],
            hovertemplate=f"{name}<br>%{{customdata[0]}}: %{{customdata[1]}}<extra></extra>",
        )
    sampled = frame[frame["sampled"].fillna(False).astype(bool)]
    if 0 < len(sampled) < len(frame):
        fig.add_scatter(
            x=(sampled["step"] + sampled["last"]) / 2.0,
            y=np.minimum(sampled["total"], 0.97 * top) * scale,
            mode="markers",
            marker={"symbol": "triangle-down", "size": 6, "color": palette.GREY},
            name="sampled",
            hoverinfo="skip",
        )
    beyond = np.flatnonzero(total > top)
    if len(beyond):
        fig.add_scatter(
            x=x[beyond],
            y=np.full(len(beyond), top * scale),
            mode="markers",
            marker={"symbol": "triangle-up", "size": 9, "color": palette.VERMILLION},
            cliponaxis=False,
            name="taller",
            customdata=[[spans[i], seconds(float(total[i]))] for i in beyond],
            hovertemplate="%{customdata[0]}: %{customdata[1]} in all<extra></extra>",
        )
    fig.update_layout(
        barmode="stack",
        bargap=0.08,
        legend={"traceorder": "normal", "entrywidth": 92},
        xaxis={"title": {"text": "step"}, "showgrid": False},
        yaxis={"title": {"text": f"{unit} per step"}, "range": [0, 1.02 * top * scale]},
    )
    return fig


def _top(total: np.ndarray) -> float:
    """Seconds at which the axis ends: at the tallest bar, unless a few (the first step, a census) dwarf the rest."""
    tallest, most = float(total.max()), 1.3 * float(np.quantile(total, 0.95))
    return most if 0 < 3 * most < tallest else tallest


def _unit(largest: float) -> tuple[str, float]:
    if largest >= 2:
        return "s", 1.0
    return ("ms", 1e3) if largest >= 1e-3 else ("µs", 1e6)


def ranked(names: Sequence[str], values: Sequence[float], title: str, color: str = palette.BLUE) -> go.Figure:
    """Horizontal bars of seconds, in the given order from the top."""
    fig = figure(max(140, 22 * len(names) + 56), left=12, top=8)
    unit, scale = _unit(max(values, default=0.0))
    fig.add_bar(
        x=[v * scale for v in values],
        y=list(range(len(names))),
        orientation="h",
        marker={"color": color},
        customdata=[[plain(n), seconds(float(v))] for n, v in zip(names, values, strict=True)],
        hovertemplate="%{customdata[0]}<br>%{customdata[1]}<extra></extra>",
        showlegend=False,
    )
    fig.update_layout(
        xaxis={"title": {"text": f"{title} ({unit})"}, "rangemode": "tozero"},
        yaxis=_names_axis(names),
        bargap=0.25,
    )
    return fig


def dtype_shares(frame: pd.DataFrame, names: Sequence[str], by: str, height: int | None = None) -> go.Figure:
    """Per module, the share of each dtype in column `by` (host_s, flops or calls). Modules from the top in the
    order of `names`; frame columns module, dtype and `by`."""
    frame = frame.assign(**{by: frame[by].astype(float)})
    wide = frame.pivot_table(index="module", columns="dtype", values=by, aggfunc="sum", fill_value=0.0)
    wide = wide.reindex(list(names)).fillna(0.0)
    total = wide.sum(axis=1).replace(0.0, np.nan)
    fig = figure(height or min(760, max(150, 19 * len(names) + 76)), left=12, top=34)
    for dtype in sorted(wide.columns, key=_width):
        values = (wide[dtype] / total).fillna(0.0).to_numpy()
        fig.add_bar(
            x=100 * values,
            y=list(range(len(names))),
            orientation="h",
            name=plain(str(dtype)),
            marker={"color": palette.dtype_color(str(dtype)), "line": {"width": 0}},
            customdata=[[plain(n), share(float(v))] for n, v in zip(names, values, strict=True)],
            hovertemplate=f"%{{customdata[0]}}<br>{plain(str(dtype))}: %{{customdata[1]}}<extra></extra>",
        )
    fig.update_layout(
        barmode="stack",
        bargap=0.2,
        showlegend=True,
        xaxis={"range": [0, 100.4], "ticksuffix": " %", "dtick": 20},
        yaxis=_names_axis(names),
    )
    return fig


def _width(dtype: object) -> tuple[int, str]:
    order = ("float8", "float16", "bfloat16", "float32", "float64")
    text = str(dtype)
    return next((i for i, name in enumerate(order) if text.startswith(name)), len(order)), text


def _names_axis(names: Sequence[str]) -> dict[str, object]:
    every = max(1, len(names) // 48)
    positions = list(range(0, len(names), every))
    return {
        "autorange": "reversed",
        "tickmode": "array",
        "tickvals": positions,
        "ticktext": [label(names[i] or "(no module)", 34) for i in positions],
        "showgrid": False,
        "tickfont": {"size": 11},
    }
