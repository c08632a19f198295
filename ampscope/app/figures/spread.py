"""One tensor's exponent histogram over steps, with zero, inf and NaN as rows of their own and the bands of a format."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from ampscope.app import palette
from ampscope.app.figures.base import column_axis, figure, power_ticks, step_labels
from ampscope.app.queries.tensors import History
from ampscope.app.queries.updates import RatioHistory

GAP = 2
"""Empty rows between the exponents and the rows of zero, inf and NaN."""

ZERO, INF, NAN = "zero", "inf", "nan"
"""`name` of the one-row traces that the browser moves to the edge of what it shows, bands included."""


def history(data: History, height: int = 420) -> go.Figure:
    """True values: share of elements per binade and step. The browser draws the bands of the format, which move
    with the what-if. Rows below and above the exponents: exact zeros; inf; NaN."""
    total = np.maximum(data.numel, 1)
    below, above = data.low - GAP - 1, data.high + GAP + 1
    fig = figure(height, left=12, right=12, top=10)
    _density(fig, data, data.counts / total, np.arange(data.low, data.high + 1), _EXPONENT)
    _density(fig, data, data.zeros[None, :] / total, [below], "exactly 0", ZERO)
    for name, word, count, row in ((INF, "inf", data.inf, above), (NAN, "NaN", data.nan, above + 1)):
        if count.any():
            fig.add_heatmap(
                **_columns(data),
                z=np.where(count > 0, 1.0, np.nan)[None, :],
                y=[row],
                name=name,
                customdata=(100.0 * count / total)[None, :],
                colorscale=[[0, palette.NONFINITE], [1, palette.NONFINITE]],
                showscale=False,
                hovertemplate=f"%{{x}}<br>{word}: {_PERCENT}<extra></extra>",
            )
    positions, labels = power_ticks(data.low, data.high)
    fig.update_layout(
        coloraxis=_SHARE_COLORS,
        xaxis=column_axis(data.last),
        yaxis={
            "tickmode": "array",
            "tickvals": [below, *positions, above, above + 1],
            "ticktext": ["0", *labels, "inf", "NaN"],
            "range": [below - 0.8, above + 1.8],
            "title": {"text": "true magnitude"},
            "showgrid": False,
        },
    )
    return fig


_EXPONENT = "2<sup>%{y}</sup> and above, below twice that"

_PERCENT = "%{customdata:.3~g} % of the elements"


def _columns(data: History | RatioHistory) -> dict[str, object]:
    return {"x": step_labels(data.first, data.last), "hoverongaps": False}


def _density(
    fig: go.Figure, data: History | RatioHistory, shares: np.ndarray, rows: object, words: str, name: str = ""
) -> None:
    """Cells coloured by log10 of their share; a share of zero stays the surface."""
    with np.errstate(divide="ignore"):
        logs = np.log10(shares)
    fig.add_heatmap(
        **_columns(data),
        z=np.where(shares > 0, np.maximum(logs, -6), np.nan).astype(np.float32),
        y=rows,
        name=name,
        customdata=(100.0 * shares).astype(np.float32),
        coloraxis="coloraxis",
        hovertemplate=f"%{{x}}<br>{words}: {_PERCENT}<extra></extra>",
    )


_SHARE_COLORS = {
    "cmin": -6,
    "cmax": 0,
    "colorscale": [list(stop) for stop in palette.DENSITY],
    "colorbar": {
        "thickness": 10,
        "outlinewidth": 0,
        "len": 1.0,
        "tickvals": [-6, -4, -2, 0],
        "ticktext": ["0.0001 %", "0.01 %", "1 %", "100 %"],
        "title": {"text": "share of elements", "side": "right", "font": {"size": 12}},
    },
}


RATIO_LINES = ((-8, "bf16: 2⁻⁸"), (-11, "fp16: 2⁻¹¹"), (-24, "fp32: 2⁻²⁴"))
"""Below these |dw|/|w|, an addition in the format starts to round the update away."""


def ratio_history(data: RatioHistory, height: int = 380) -> go.Figure:
    """|dw|/|w| of one parameter: share of the moved elements per binade and step, with the lines of the formats."""
    z = data.counts / np.maximum(data.moved, 1)
    low, high = min(data.low, -12), max(data.low + z.shape[0] - 1, -6)
    fig = figure(height, left=12, right=92, top=10)
    _density(fig, data, z, np.arange(data.low, data.low + z.shape[0]), "|Δw|/|w| of " + _EXPONENT)
    for exponent, text in RATIO_LINES:
        if low - 1 <= exponent <= high + 1:
            fig.add_hline(
                y=exponent - 0.5,
                line={"color": palette.VERMILLION, "width": 1.4, "dash": "dash"},
                annotation={
                    "text": text,
                    "font": {"color": palette.VERMILLION, "size": 11},
                    "xanchor": "left",
                },
                annotation_position="right",
            )
    positions, labels = power_ticks(low, high)
    fig.update_layout(
        coloraxis={**_SHARE_COLORS, "showscale": False},
        xaxis=column_axis(data.last),
        yaxis={
            "tickmode": "array",
            "tickvals": positions,
            "ticktext": labels,
            "range": [low - 1, high + 1],
            "title": {"text": "|Δw| / |w|"},
            "showgrid": False,
        },
    )
    return fig
