"""Two runs in one figure: their losses, and the ratio of their tensors over steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from ampscope.app import palette
from ampscope.app.figures.base import categories, column_axis, figure, label
from ampscope.report.text import number

EQUAL = "rgba(127,127,127,0.10)"


def losses(one: pd.DataFrame, two: pd.DataFrame, names: tuple[str, str], height: int = 320) -> go.Figure:
    """Loss over steps of both; frames with columns step and loss."""
    fig = figure(height, top=34)
    for frame, name, color in ((one, names[0], palette.BLUE), (two, names[1], palette.ORANGE)):
        fig.add_scatter(
            x=frame["step"].to_numpy(),
            y=frame["loss"].to_numpy(),
            mode="lines",
            line={"width": 1.8, "color": color},
            name=label(name, 48),
            customdata=[number(float(v)) for v in frame["loss"]],
            hovertemplate="step %{x}<br>loss %{customdata}<extra></extra>",
        )
    fig.update_layout(xaxis={"title": {"text": "step"}}, yaxis={"title": {"text": "loss"}}, showlegend=True)
    return fig


def ratio_heat(found: pd.DataFrame, names: Sequence[str]) -> go.Figure:
    """Ratio of true magnitudes, nothing where equal; 8 × and more have the end colours. Coloured by the root of its
    log2, so that a few percent are seen beside a factor of two."""
    columns = sorted(found["step"].unique())
    wide = found.pivot_table(index="name", columns="step", values="log2", aggfunc="first").reindex(
        list(names)
    )
    z = wide.reindex(columns=columns).to_numpy(dtype=float)
    height = int(min(720, max(220, 15 * len(names) + 90)))
    fig = figure(height, left=12, right=12, top=10)
    with np.errstate(over="ignore"):
        factor = np.exp2(z).astype(np.float32)
    fig.add_heatmap(
        z=(np.sign(z) * np.sqrt(np.minimum(np.abs(z), 3.0))).astype(np.float32),
        x=[f"step {c}" for c in columns],
        y=categories(names),
        customdata=factor,
        colorscale=[[0.0, palette.BLUE], [0.45, EQUAL], [0.55, EQUAL], [1.0, palette.VERMILLION]],
        zmin=-(3**0.5),
        zmax=3**0.5,
        hoverongaps=False,
        hovertemplate="<b>%{y}</b><br>%{x}<br>second is %{customdata:.4~g} times the first<extra></extra>",
        colorbar={
            "thickness": 10,
            "outlinewidth": 0,
            "len": 1.0,
            "tickvals": [-(3**0.5), -1, 0, 1, 3**0.5],
            "ticktext": ["⅛ ×", "½ ×", "equal", "2 ×", "8 ×"],
            "title": {"text": "second / first", "side": "right", "font": {"size": 12}},
        },
    )
    every = max(1, -(-len(names) * 13 // max(1, height - 80)))
    positions = list(range(0, len(names), every))
    fig.update_layout(
        xaxis=column_axis(np.asarray(columns)),
        yaxis={
            "autorange": "reversed",
            "tickmode": "array",
            "tickvals": positions,
            "ticktext": [label(names[i], 36) for i in positions],
            "showgrid": False,
            "tickfont": {"size": 11},
        },
    )
    return fig
