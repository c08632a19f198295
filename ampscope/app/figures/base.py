"""What every figure shares: the template, axes in powers of two, text that cannot carry markup.

Text and grid colours of the dark theme come from `assets/plots.css`, so one figure serves both themes and
an exported image is always the light one.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from ampscope.app import palette
from ampscope.report.text import clean, shorten
from ampscope.report.text import power as plain_power

FONT = 'Inter, "Segoe UI", Roboto, "Helvetica Neue", Arial, "Liberation Sans", sans-serif'
MONO = 'ui-monospace, "SF Mono", "Cascadia Mono", Menlo, Consolas, "Liberation Mono", monospace'

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

_AXIS = {
    "gridcolor": "#e8ebf0",
    "zeroline": False,
    "linecolor": "#c9d0da",
    "ticks": "outside",
    "ticklen": 5,
    "tickcolor": "rgba(0,0,0,0)",
    "automargin": True,
    "exponentformat": "e",
    "title": {"standoff": 8, "font": {"size": 12}},
}

TEMPLATE = go.layout.Template(
    layout={
        "font": {"family": FONT, "size": 12, "color": "#475467"},
        "colorway": list(palette.CATEGORIES),
        "paper_bgcolor": "#ffffff",
        "plot_bgcolor": "#ffffff",
        "xaxis": _AXIS,
        "yaxis": _AXIS,
        "hoverlabel": {
            "bgcolor": "#1d2430",
            "bordercolor": "#1d2430",
            "font": {"color": "#f5f7fa", "size": 12, "family": FONT},
            "align": "left",
        },
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"size": 12}},
        "colorscale": {"sequential": [list(stop) for stop in palette.RANGE]},
    }
)


def figure(
    height: int, *traces: go.Figure, left: int = 56, right: int = 16, top: int = 28, bottom: int = 40
) -> go.Figure:
    """An empty figure of `height` pixels in the house style."""
    fig = go.Figure(list(traces))
    fig.update_layout(
        template=TEMPLATE,
        height=height,
        margin={"l": left, "r": right, "t": top, "b": 40},
        hovermode="closest",
        dragmode="zoom",
    )
    return fig


def plain(text: str) -> str:
    """`text` for a Plotly label: Plotly reads a little HTML in labels, so markup is escaped and shown as it is."""
    return html.escape(clean(text), quote=False)


def label(name: str, limit: int = 34) -> str:
    """A name that may be long, for a tick or legend: its middle goes, markup is escaped."""
    return html.escape(shorten(clean(name), limit), quote=False)


def sup(exponent: int) -> str:
    """`⁻¹⁴`."""
    return str(exponent).translate(_SUPERSCRIPT)


def two_to(exponent: int) -> str:
    """`2⁻¹⁴`."""
    return "2" + sup(exponent)


def power(value: float | None) -> str:
    """`65536 (2¹⁶)`: a number, with its power of two where it is one."""
    text, caret, exponent = plain_power(value).rstrip(")").partition("^")
    return f"{text}{exponent.translate(_SUPERSCRIPT)})" if caret else text


def log2(values: Sequence[float] | np.ndarray | pd.Series) -> np.ndarray:
    """Elementwise log2, float64; NaN where the value is not positive and finite."""
    x = np.asarray(values, dtype=np.float64)
    out = np.full(x.shape, np.nan)
    good = np.isfinite(x) & (x > 0)
    out[good] = np.log2(x[good])
    return out


def power_ticks(low: float, high: float, at_most: int = 9) -> tuple[list[int], list[str]]:
    """(positions, labels) of whole exponents between `low` and `high` (in log2), at a step of 1, 2, 4, 8 …"""
    if not (math.isfinite(low) and math.isfinite(high)):
        return [0], [two_to(0)]
    first, last = math.floor(low), math.ceil(high)
    step = 1
    while (last - first) / step > at_most:
        step *= 2
    positions = list(range(math.ceil(first / step) * step, last + 1, step))
    return positions, [two_to(p) for p in positions]


def power_axis(
    low: float, high: float, title: str = "", pad: float = 0.5, at_most: int = 9
) -> dict[str, object]:
    """Layout of an axis whose values are log2 of something, labelled in powers of two."""
    positions, labels = power_ticks(low, high, at_most)
    if not (math.isfinite(low) and math.isfinite(high)):
        low, high = -1.0, 1.0
    return {
        "tickmode": "array",
        "tickvals": positions,
        "ticktext": labels,
        "range": [low - max(pad, 0.06 * (high - low)), high + max(pad, 0.06 * (high - low))],
        "title": {"text": title},
    }


def step_labels(first: np.ndarray, last: np.ndarray) -> list[str]:
    """`step 3` or `steps 3–9` for each column."""
    return [f"step {a}" if a == b else f"steps {a}–{b}" for a, b in zip(first, last, strict=True)]


def categories(names: Sequence[str]) -> list[str]:
    """`names` as categories of an axis: escaped, and told apart where that makes two of them alike.

    A heat map over categories names its cells in the hover by the axis alone: no text per cell is sent.
    """
    seen: dict[str, int] = {}
    out = []
    for name in map(plain, names):
        seen[name] = seen.get(name, 0) + 1
        out.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return out


def column_axis(last: np.ndarray, at_most: int = 12) -> dict[str, object]:
    """Layout of an axis of columns 0, 1, 2 … of equal width, labelled by their last step: what was sampled at
    uneven steps does not look as if it had been seen in between."""
    every = max(1, -(-len(last) // at_most))
    positions = list(range(0, len(last), every))
    return {
        "tickmode": "array",
        "tickvals": positions,
        "ticktext": [str(last[i]) for i in positions],
        "title": {"text": "sampled step"},
        "showgrid": False,
    }


def span(values: np.ndarray) -> tuple[float, float]:
    """(smallest, largest) finite value; (0, 0) when there is none."""
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
