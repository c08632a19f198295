"""One tensor's exponent histogram over steps, with zero, inf and NaN as rows of their own and the bands of a format."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from ampscope.app import palette
from ampscope.app.figures.base import column_axis, figure, power_ticks, step_labels, sup
from ampscope.app.queries.tensors import History
from ampscope.app.queries.updates import RatioHistory
from ampscope.report.text import share

GAP = 2
"""Empty rows between the exponents and the rows of zero, inf and NaN."""

ZERO, BAD = "zero", "bad"
"""`name` of the traces that the browser moves to the edge of what it shows, bands included."""


def history(data: History, height: int = 420) -> go.Figure:
    """True values: share of elements per binade and step. The browser draws the bands of the format, which move
    with the what-if. Rows below and above the exponents: exact zeros; inf; NaN."""
    total = np.maximum(data.numel, 1)
    below, above = data.low - GAP - 1, data.high + GAP + 1
    fig = figure(height, left=12, right=12, top=10)
    x = np.arange(len(data.last))
    steps = step_labels(data.first, data.last)
    exponents = list(range(data.low, data.high + 1))
    names = [f"2{sup(e)} … 2{sup(e + 1)}" for e in exponents]
    rows = (
        (exponents, names, data.counts / total, ""),
        ([below], ["exactly 0"], data.zeros[None, :] / total, ZERO),
    )
    for y, labels, shares, name in rows:
        fig.add_heatmap(
            z=_colored(shares),
            x=x,
            y=y,
            name=name,
            customdata=_cells(labels, steps, shares),
            coloraxis="coloraxis",
            hoverongaps=False,
            hovertemplate=_HOVER,
        )
    bad = np.vstack([data.inf / total, data.nan / total])
    if (bad > 0).any():
        fig.add_heatmap(
            z=np.where(bad > 0, 1.0, np.nan),
            x=x,
            y=[above, above + 1],
            name=BAD,
            customdata=_cells(["inf", "NaN"], steps, bad),
            colorscale=[[0, palette.NONFINITE], [1, palette.NONFINITE]],
            showscale=False,
            hoverongaps=False,
            hovertemplate=_HOVER,
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


_HOVER = "%{customdata[0]}<br>%{customdata[1]}: %{customdata[2]} of the elements<extra></extra>"

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
        "title": {"text": "share of elements", "side": "right"},
    },
}


def _colored(shares: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        logs = np.log10(shares)
    return np.where(shares > 0, np.maximum(logs, -6), np.nan)


def _cells(names: Sequence[str], steps: Sequence[str], z: np.ndarray) -> np.ndarray:
    """Hover text of each cell."""
    out = np.empty((*z.shape, 3), dtype=object)
    out[..., 0] = np.array(steps, dtype=object)[None, :]
    out[..., 1] = np.array(names, dtype=object)[:, None]
    out[..., 2] = [[share(float(v)) for v in row] for row in z]
    return out


RATIO_LINES = ((-8, "bf16: 2⁻⁸"), (-11, "fp16: 2⁻¹¹"), (-24, "fp32: 2⁻²⁴"))
"""Below these |dw|/|w|, an addition in the format starts to round the update away."""


def ratio_history(data: RatioHistory, height: int = 380) -> go.Figure:
    """|dw|/|w| of one parameter: share of the moved elements per binade and step, with the lines of the formats."""
    z = data.counts / np.maximum(data.moved, 1)
    low, high = min(data.low, -12), max(data.low + z.shape[0] - 1, -6)
    fig = figure(height, left=12, right=92, top=10)
    steps = step_labels(data.first, data.last)
    names = [f"2{sup(data.low + i)} … 2{sup(data.low + i + 1)}" for i in range(z.shape[0])]
    fig.add_heatmap(
        z=_colored(z),
        x=np.arange(len(data.last)),
        y=np.arange(data.low, data.low + z.shape[0]),
        customdata=_cells(names, steps, z),
        coloraxis="coloraxis",
        hoverongaps=False,
        hovertemplate="%{customdata[0]}<br>|Δw|/|w| in %{customdata[1]}: %{customdata[2]}<extra></extra>",
    )
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
