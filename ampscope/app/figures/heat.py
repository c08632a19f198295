"""Heat maps of tensors over steps. Absent, zero and non-finite cells each look like themselves, never like a number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from ampscope.app import palette
from ampscope.app.figures.base import (
    categories,
    column_axis,
    figure,
    label,
    log2,
    plain,
    power_ticks,
    span,
    step_labels,
)

ROW = 15
"""Pixels per tensor, where there is room."""

ROOT = 1 / 3
"""Shares are coloured by their cube root, so that 0.1 % and 90 % both differ from their neighbours."""


@dataclass(frozen=True)
class Matrix:
    """`values[i, j]` of tensor `names[i]` in column j, which spans steps `first[j]` to `last[j]`; NaN: not
    measured, or nothing to take the logarithm of. `bad[i, j]`: the share of its elements that are NaN or inf;
    `zero[i, j]`: it was measured and every element was zero."""

    names: tuple[str, ...]
    first: np.ndarray
    last: np.ndarray
    values: np.ndarray
    bad: np.ndarray
    zero: np.ndarray


@dataclass(frozen=True)
class Colors:
    """Colour values of the cells, the range of the ramp, its stops, and where its bar is labelled."""

    z: np.ndarray
    low: float
    high: float
    ramp: Sequence[tuple[float, str]]
    ticks: Sequence[float] = ()
    labels: Sequence[str] = ()


def matrix(
    frame: pd.DataFrame,
    names: Sequence[str],
    values: pd.Series,
    bad: pd.Series | None = None,
    zero: pd.Series | None = None,
) -> Matrix:
    """From a long frame with columns name, bucket, first, last and a value per row, rows in the order of `names`."""
    columns = frame.groupby("bucket", sort=True).agg(first=("first", "min"), last=("last", "max"))
    row = {name: i for i, name in enumerate(names)}
    at = {bucket: j for j, bucket in enumerate(columns.index)}
    i = frame["name"].map(row).to_numpy()
    j = frame["bucket"].map(at).to_numpy()
    z = np.full((len(names), len(columns)), np.nan)
    z[i, j] = values.to_numpy(dtype=float, na_value=np.nan)
    b = np.zeros_like(z)
    if bad is not None:
        b[i, j] = bad.to_numpy(dtype=float, na_value=0.0)
    nothing = np.zeros(z.shape, dtype=bool)
    if zero is not None:
        nothing[i, j] = zero.to_numpy(dtype=bool)
    return Matrix(tuple(names), columns["first"].to_numpy(), columns["last"].to_numpy(), z, b, nothing)


def heat(data: Matrix, kind: str, title: str, selected: str = "") -> go.Figure:
    """`kind` is harm or part (shares of 0 … 1, alarming or not), log2 (magnitudes) or binades (signed room, red
    where it ends). `customdata` of a cell is its value, of a share in percent."""
    height = int(min(760, max(220, ROW * len(data.names) + 90)))
    fig = figure(height, left=12, right=12, top=10)
    colors = _scaled(data.values, kind)
    shown, unit = _hover_value(data.values, kind)
    fig.add_heatmap(
        **_cells(data),
        z=colors.z,
        customdata=shown,
        colorscale=[list(stop) for stop in colors.ramp],
        zmin=colors.low,
        zmax=colors.high,
        colorbar=_bar(title, colors),
        hovertemplate=f"<b>%{{y}}</b><br>%{{x}}<br>{plain(title)} {unit}<extra></extra>",
    )
    _overlay(fig, data, data.zero & np.isnan(data.values), palette.NOTHING, "all zero")
    _overlay(fig, data, data.bad > 0, palette.NONFINITE, "NaN or inf", data.bad)
    _mark_selected(fig, data, selected)
    positions, labels = _ticks(data.names, height)
    fig.update_layout(
        xaxis=column_axis(data.last),
        yaxis={
            "autorange": "reversed",
            "tickmode": "array",
            "tickvals": positions,
            "ticktext": labels,
            "showgrid": False,
            "tickfont": {"size": 11},
        },
    )
    return fig


def _cells(data: Matrix) -> dict[str, object]:
    return {
        "x": step_labels(data.first, data.last),
        "y": categories(data.names),
        "hoverongaps": False,
        "ygap": 1 if len(data.names) < 80 else 0,
    }


def _hover_value(values: np.ndarray, kind: str) -> tuple[np.ndarray, str]:
    """What a cell says: four significant digits, in scientific notation where small."""
    if kind in ("harm", "part"):
        return (100.0 * values).astype(np.float32), "%{customdata:.3~g} %"
    return values.astype(np.float32), "%{customdata:.4~g}" + (" binades" if kind == "binades" else "")


def _scaled(values: np.ndarray, kind: str) -> Colors:
    if kind in ("harm", "part"):
        shades = palette.HARM if kind == "harm" else palette.PART
        at = [0.0, 1e-3, 0.01, 0.1, 0.5, 1.0]
        shown = ["0", "0.1 %", "1 %", "10 %", "50 %", "100 %"]
        return Colors(_small(np.clip(values, 0, 1) ** ROOT), 0.0, 1.0, shades, [a**ROOT for a in at], shown)
    if kind == "log2":
        z = log2(values)
        low, high = span(z)
        exponents, labels = power_ticks(low, high, 7)
        return Colors(_small(z), low, max(high, low + 1), palette.RANGE, exponents, labels)
    low, high = span(values)
    ramp = ((0.0, palette.VERMILLION), (0.18, palette.ORANGE), (0.5, "#7ba7bc"), (1.0, palette.BLUE))
    return Colors(_small(values), min(low, 0.0), max(high, 16.0), ramp)


def _small(z: np.ndarray) -> np.ndarray:
    """float32: a colour needs no more, and half the bytes go to the browser."""
    return z.astype(np.float32)


def _bar(title: str, colors: Colors) -> dict[str, object]:
    bar: dict[str, object] = {
        "thickness": 10,
        "len": 1.0,
        "outlinewidth": 0,
        "title": {"text": plain(title), "side": "right", "font": {"size": 12}},
        "tickfont": {"size": 11},
    }
    if colors.ticks:
        bar.update(tickmode="array", tickvals=list(colors.ticks), ticktext=list(colors.labels))
    return bar


def _overlay(
    fig: go.Figure, data: Matrix, mask: np.ndarray, color: str, name: str, share: np.ndarray | None = None
) -> None:
    """Cells of one colour that belong to no ramp; `share` of 0 … 1 is told in the hover."""
    if not mask.any():
        return
    more = "" if share is None else ": %{customdata:.3~g} %"
    fig.add_heatmap(
        **_cells(data),
        z=_small(np.where(mask, 1.0, np.nan)),
        customdata=None if share is None else (100.0 * share).astype(np.float32),
        colorscale=[[0, color], [1, color]],
        showscale=False,
        hovertemplate=f"<b>%{{y}}</b><br>%{{x}}<br>{name}{more}<extra></extra>",
        name=name,
    )


def _mark_selected(fig: go.Figure, data: Matrix, selected: str) -> None:
    if selected in data.names:
        at = data.names.index(selected)
        fig.add_shape(
            type="rect",
            xref="paper",
            x0=0,
            x1=1,
            y0=at - 0.5,
            y1=at + 0.5,
            line={"color": palette.SKY, "width": 2},
            fillcolor="rgba(0,0,0,0)",
        )


def _ticks(names: Sequence[str], height: int) -> tuple[list[int], list[str]]:
    every = max(1, -(-len(names) * 13 // max(1, height - 80)))
    positions = list(range(0, len(names), every))
    return positions, [label(names[i], 36) for i in positions]
