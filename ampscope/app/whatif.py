"""What the browser computes the what-if of a scale or a format from, and the figures that it draws it into.

The arithmetic is in `assets/whatif.js`; here are the histograms, the formats and the empty figures.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from dash import dcc, html

from ampscope.app import formats
from ampscope.app.blocks import GRAPH_CONFIG, jump, pickable, prose
from ampscope.app.figures import base, spread
from ampscope.app.queries import summary
from ampscope.app.queries.tensors import History, Spectrum
from ampscope.app.runs import Context

EPSILON = 1e-3
"""Share of a tensor's nonzero elements that a loss scale may flush and still count as safe: the default of
`ampscope.numerics.loss_scale.scale_window`."""

LOST = 0.01
"""Share of recomputed backward results that became zero, above which the recorded loss scale is too low."""

BLOCKS = (
    "The largest value scaled to the end of the format is what per-tensor FP8 with current scaling does. MXFP8, MXFP6, "
    "MXFP4, NVFP4 and other block recipes cannot be told from a histogram: it does not say which values share a block. "
    '`ampscope.numerics.evaluate_both(tensor, "mxfp8")` says it of the tensor itself.'
)

HALF = ("float16", "bfloat16")


def recorded_scale(context: Context) -> float:
    """The last loss scale at which a step was taken; where every step was skipped, the one that the run began with,
    for those after it were only ways down; 1 for a run without a loss scale."""
    found = context.src.value(
        """SELECT coalesce(arg_max(scale, step) FILTER (WHERE NOT coalesce(skipped, false)), arg_min(scale, step))
           FROM {steps} WHERE scale > 0"""
    )
    return float(found) if found else 1.0


def seen_through(context: Context, role: str) -> str:
    """The half-precision format that gradients passed through before they were read ("" for none).

    Under autocast the gradient of a float32 parameter comes out of a half-precision op: what that op flushed
    is an exact zero by the time anybody can look.
    """
    if role not in ("grad", "activation_grad"):
        return ""
    found = context.src.value("SELECT mode(autocast_dtype) FROM {steps}")
    return str(found) if found in HALF else ""


def observed_floor(context: Context) -> tuple[int | None, float | None]:
    """(k, share): the recomputed backward ops lost that share of their results at the recorded loss scale, which is
    more than `LOST`, so a scale has to be at least 2^k. (None, None) when they lost less or none was recomputed.

    Needed because histograms alone cannot show it: what float16 flushed is a zero by the time it is read.
    """
    found = summary.observed_flushed(context.src)
    if found is None or found.value is None or found.value <= LOST:
        return None, None
    return math.floor(math.log2(recorded_scale(context))) + 1, found.value


def tensor_data(data: History, at: int | None, scale: float, through: str = "") -> dict[str, Any]:
    """What the browser computes the what-if of one tensor from: all steps, or the column that holds step `at`.

    `through`: the half-precision dtype that the values had before they were read, if not their own.
    """
    chosen_columns = np.ones(len(data.first), dtype=bool)
    if at is not None and ((data.first <= at) & (at <= data.last)).any():
        chosen_columns = (data.first <= at) & (at <= data.last)
    amax = data.amax[chosen_columns]
    finite = amax[np.isfinite(amax)]
    spectrum = base.figure(300, left=56, top=26)
    spectrum.update_layout(
        xaxis={"title": {"text": "true magnitude"}, "showgrid": False},
        yaxis={"title": {"text": "% of elements"}},
        bargap=0.06,
        showlegend=False,
    )
    return {
        "low": data.low,
        "counts": data.counts[:, chosen_columns].sum(axis=1).tolist(),
        "numel": int(data.numel[chosen_columns].sum()),
        "zeros": int(data.zeros[chosen_columns].sum()),
        "nan": int(data.nan[chosen_columns].sum()),
        "inf": int(data.inf[chosen_columns].sum()),
        "amax": float(finite.max()) if finite.size else 0.0,
        "scale": scale,
        "through": data.dtype if data.dtype in HALF else through,
        "inexact": data.inexact,
        "formats": formats.as_json(),
        "history": _history(data),
        "spectrum": spectrum.to_plotly_json(),
    }


def _history(data: History) -> dict[str, Any]:
    figure = spread.history(data)
    pickable(figure, "at", "x", data.last.tolist())
    found: dict[str, Any] = figure.to_plotly_json()
    return found


def tensor_view(context: Context, name: str, data: History, store: dict[str, Any], at: int | None) -> Any:
    def plot(kind: str, height: int, about: str) -> Any:
        id = {"type": kind, "of": "tensor"}
        return html.Div(
            dcc.Graph(id=id, config=GRAPH_CONFIG, style={"height": height}),
            className="graph",
            role="figure",
            **{"aria-label": about},
        )

    params = {k: v for k, v in context.view.params if k != "at"}
    back = jump("show all steps", context.view.link(context.view.path, **params)) if at is not None else None
    shown = f"step {at}" if at is not None else "all recorded steps"
    return [
        dcc.Store(id={"type": "whatif-data", "of": "tensor"}, data=store),
        html.P([html.Code(name), f"  {data.dtype}, true values over steps"], className="subtitle"),
        html.Div(
            plot(
                "whatif-history",
                420,
                f"Exponent histogram of {name} over steps, with the bands of the format.",
            ),
            className="full",
        ),
        html.Div(id={"type": "whatif-numbers", "of": "tensor"}, className="minis", **{"aria-live": "polite"}),
        html.P(["Histogram over ", shown, ", bands at the what-if scale. ", back], className="subtitle"),
        plot("whatif-spectrum", 300, f"Exponent histogram of {name} over {shown}."),
        html.H3("In every format", className="sub-head"),
        html.Div(id={"type": "whatif-formats", "of": "tensor"}, className="table-wide", tabIndex="0"),
        html.P(prose(BLOCKS), className="subtitle"),
    ]


def window_data(
    spectra: Sequence[Spectrum],
    scale: float,
    through: str = "",
    floor: int | None = None,
    lost: float | None = None,
) -> dict[str, Any]:
    """What the browser computes the window of safe loss scales from; `floor` and `lost` as `observed_floor`."""
    figure = base.figure(320, left=60, top=56)
    figure.update_layout(
        # Above the names of the two lines, which stand on the frame.
        legend={"y": 1.1},
        xaxis={**base.power_axis(-8, 40, "loss scale"), "range": [-8, 40]},
        yaxis={
            "type": "log",
            "title": {"text": "% of nonzero elements"},
            "range": [-4.1, 2.1],
            "tickvals": [1e-4, 1e-2, 1, 100],
            "ticktext": ["0.0001", "0.01", "1", "100"],
        },
    )
    return {
        "tensors": [
            {"name": s.name, "low": s.low, "counts": list(s.counts), "amax": s.amax} for s in spectra
        ],
        "scale": scale,
        "epsilon": EPSILON,
        "through": through,
        "floor": floor,
        "lost": lost,
        "formats": formats.as_json(),
        "window": figure.to_plotly_json(),
    }


def window_view(data: dict[str, Any]) -> Any:
    return [
        dcc.Store(id={"type": "window-data", "of": "model"}, data=data),
        html.Div(
            id={"type": "window-advice", "of": "model"}, className="advice-box", **{"aria-live": "polite"}
        ),
        html.Div(
            dcc.Graph(
                id={"type": "window-figure", "of": "model"}, config=GRAPH_CONFIG, style={"height": 320}
            ),
            className="graph",
            role="figure",
            **{"aria-label": "Share of gradients flushed and overflowed by loss scale."},
        ),
    ]
