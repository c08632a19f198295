"""The course of a run on one step axis: the loss scale with skipped steps, its safe band, and the loss below it."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from ampscope.app import palette
from ampscope.app.figures.base import figure, label, log2, plain, power, power_axis, span
from ampscope.report.text import number


def course(
    loss: pd.DataFrame,
    scale: pd.DataFrame,
    skips: pd.DataFrame,
    bad_losses: pd.DataFrame,
    height: int = 380,
) -> go.Figure:
    """Loss scale above, loss below, one step axis; a run without a loss scale gets the loss alone.

    Frames as `queries.steps` gives them. NaN and inf losses have a row of their own between the two.
    """
    fig = figure(height, top=34)
    has_scale = not scale.empty
    bad = not bad_losses.empty
    top = 0.0
    if has_scale:
        top = 0.52
        _add_scale(fig, scale, skips)
        fig.update_layout(yaxis2={**scale_axis(scale["scale"].to_numpy(), ticks=5), "domain": [0.62, 1.0]})
    ceiling = top if has_scale else 1.0
    if loss.empty and bad and has_scale:  # nothing to draw below: the scale takes the room
        ceiling = top = 0.24
        fig.update_layout(yaxis2={"domain": [0.32, 1.0]})
    if bad:
        ceiling -= 0.10 if has_scale else 0.14
    fig.update_layout(
        xaxis={"title": {"text": "step"}, "anchor": "y"},
        yaxis={"title": {"text": "loss"}, "domain": [0.0, ceiling]},
    )
    _add_loss(fig, loss)
    if loss.empty:
        fig.update_layout(yaxis={"showticklabels": False, "showgrid": False, "title": {"text": ""}})
        text = "no finite loss" if bad else "no loss was recorded"
        fig.add_annotation(text=text, xref="paper", x=0.5, yref="paper", y=ceiling / 2, showarrow=False)
    if bad:
        _add_bad(fig, bad_losses, (ceiling + 0.03, top if has_scale else 1.0))
    if not bad and skips.empty and (not has_scale or scale["scaler"].nunique() == 1):
        fig.update_layout(showlegend=False, margin={"t": 10})
    return fig


def scale_axis(values: np.ndarray, extra: np.ndarray | None = None, ticks: int = 9) -> dict[str, object]:
    """Layout of a loss-scale axis: log2, at least two binades high, with about `ticks` labels at most."""
    low, high = span(log2(values))
    if extra is not None:
        more = span(log2(extra))
        low, high = min(low, more[0]), max(high, more[1])
    if high - low < 2:
        low, high = low - 1, high + 1
    return power_axis(low, high, "loss scale", at_most=ticks)


def _add_scale(fig: go.Figure, scale: pd.DataFrame, skips: pd.DataFrame, axis: str = "y2") -> None:
    for at, (name, rows) in enumerate(scale.groupby("scaler", sort=True)):
        fig.add_scatter(
            x=rows["step"].to_numpy(),
            y=log2(rows["scale"]),
            yaxis=axis,
            mode="lines" if len(rows) > 1 else "markers",
            line={"shape": "hv", "width": 2, "color": palette.CATEGORIES[at % len(palette.CATEGORIES)]},
            name=label(str(name)),
            customdata=[power(v) for v in rows["scale"]],
            hovertemplate="step %{x}<br>scale %{customdata}<extra></extra>",
        )
    if not skips.empty:
        fig.add_scatter(
            x=skips["step"].to_numpy(),
            y=log2(skips["scale"]),
            yaxis=axis,
            mode="markers",
            marker={"symbol": "x-thin", "size": 9, "line": {"width": 2.5, "color": palette.VERMILLION}},
            name=f"skipped step ({len(skips)})",
            customdata=[
                [power(s), plain(str(o or ""))] for s, o in zip(skips["scale"], skips["opt"], strict=True)
            ],
            hovertemplate="step %{x} skipped<br>scale %{customdata[0]}<br>%{customdata[1]}<extra></extra>",
        )


def _add_loss(fig: go.Figure, loss: pd.DataFrame) -> None:
    fig.add_scatter(
        x=loss["step"].to_numpy(),
        y=loss["loss"].to_numpy(),
        mode="lines" if len(loss) > 1 else "markers",
        line={"width": 1.6, "color": palette.GREEN},
        name="loss",
        showlegend=False,
        customdata=[number(float(v)) for v in loss["loss"]],
        hovertemplate="step %{x}<br>loss %{customdata}<extra></extra>",
    )


def _add_bad(fig: go.Figure, bad: pd.DataFrame, domain: tuple[float, float]) -> None:
    kinds = [k for k in ("-inf", "inf", "NaN") if k in set(bad["kind"])]
    fig.add_scatter(
        x=bad["step"].to_numpy(),
        y=bad["kind"].tolist(),
        yaxis="y3",
        mode="markers",
        marker={"symbol": "square", "size": 6, "color": palette.NONFINITE},
        name="loss is NaN or inf",
        hovertemplate="step %{x}<br>loss is %{y}<extra></extra>",
    )
    fig.update_layout(
        yaxis3={
            "domain": list(domain),
            "type": "category",
            "categoryorder": "array",
            "categoryarray": kinds,
            "showgrid": False,
            "anchor": "x",
        }
    )


def scale_window(
    scale: pd.DataFrame,
    skips: pd.DataFrame,
    limits: pd.DataFrame,
    floors: pd.DataFrame,
    floor_log2: int | None = None,
    height: int = 360,
) -> go.Figure:
    """The loss scale inside its safe band: below 65504 / largest gradient, above what keeps 99 % of the nonzero
    gradients at or above 2^-24, and at least 2^floor_log2 (seen to be needed, whatever the histograms say).
    Frames as `queries.steps` and `queries.tensors` give them."""
    fig = figure(height, top=34)
    ceiling = 65504.0 / limits["amax"].to_numpy(dtype=float) if len(limits) else np.zeros(0)
    floor = np.exp2(-24.0 - floors["exponent"].to_numpy(dtype=float)) if len(floors) else np.zeros(0)
    if floor_log2 is not None:
        floor = np.maximum(floor, 2.0**floor_log2)
    both = np.zeros(len(limits), dtype=bool)
    if len(floor):
        both = limits["step"].between(floors["step"].min(), floors["step"].max()).to_numpy(dtype=bool)
    if len(ceiling) and both.any():
        fig.add_scatter(
            x=[*limits["step"][both], *floors["step"][::-1]],
            y=[*log2(ceiling)[both], *log2(floor)[::-1]],
            mode="none",
            fill="toself",
            fillcolor="rgba(0,158,115,0.13)",
            name="safe band",
            hoverinfo="skip",
        )
    if len(ceiling):
        fig.add_scatter(
            x=limits["step"].to_numpy(),
            y=log2(ceiling),
            mode="lines",
            line={"width": 1.2, "dash": "dot", "color": palette.VERMILLION},
            name="overflow above",
            customdata=[
                [power(c), label(str(n), 60)] for c, n in zip(ceiling, limits["closer"], strict=True)
            ],
            hovertemplate="step %{x}<br>overflows above %{customdata[0]}<br>%{customdata[1]}<extra></extra>",
        )
    if len(floor):
        fig.add_scatter(
            x=floors["step"].to_numpy(),
            y=log2(floor),
            mode="lines",
            line={"width": 1.2, "dash": "dot", "color": palette.PURPLE},
            name="1 % flushed below",
            customdata=[power(float(f)) for f in floor],
            hovertemplate="step %{x}<br>over 1 % of gradients flush below %{customdata}<extra></extra>",
        )
    _add_scale(fig, scale, skips, "y")
    axis = scale_axis(scale["scale"].to_numpy(), np.concatenate([ceiling, floor]))
    fig.update_layout(xaxis={"title": {"text": "step"}}, yaxis=axis)
    return fig


def line(
    frame: pd.DataFrame, x: str, y: str, title: str, color: str = palette.BLUE, height: int = 220
) -> go.Figure:
    """One plain line of column `y` over column `x`."""
    fig = figure(height, top=12)
    values = frame[y].to_numpy(dtype=float)
    fig.add_scatter(
        x=frame[x].to_numpy(),
        y=values,
        mode="lines",
        line={"width": 1.6, "color": color},
        customdata=[number(None if math.isnan(v) else float(v)) for v in values],
        hovertemplate=f"step %{{x}}<br>{title} %{{customdata}}<extra></extra>",
        showlegend=False,
    )
    fig.update_layout(xaxis={"title": {"text": x}}, yaxis={"title": {"text": title}})
    return fig
