"""The replay of dynamic loss scaling on the Scale page: what the browser computes it from, its controls and its frame.

The arithmetic is in `assets/replay.js`; it is that of `ampscope.numerics.simulate_loss_scale`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from dash import dcc, html

from ampscope.app import formats, ui, whatif
from ampscope.app.blocks import GRAPH_CONFIG, notice
from ampscope.app.figures import base
from ampscope.app.page import Control
from ampscope.app.queries import replay, steps, tensors
from ampscope.app.runs import Context

DEFAULTS = {"init": 65536.0, "growth": 2.0, "backoff": 0.5, "interval": 2000.0}
"""Policy of torch.amp.GradScaler, for a run without one."""

NAMES = {
    "init": "init_scale",
    "growth": "growth_factor",
    "backoff": "backoff_factor",
    "interval": "growth_interval",
}
"""What torch.amp.GradScaler calls them."""

NOTHING = {
    "steps": ("No step was recorded", "The script ended before its first optimizer step."),
    "broken": (
        "No policy would have helped",
        "The loss was NaN or inf at every step, before any gradient: all of them are skipped at every loss scale.",
    ),
    "unread": (
        "No finite gradient was read in this run",
        "The replay needs the largest gradient of some steps: sample more of them (`ampscope run --every 1 …`).",
    ),
}
"""What is said for each `obstacle`."""

HEIGHT = 420


def policy(context: Context) -> dict[str, float]:
    """The policy that the replay starts from: of the busiest recorded scaler, from the first scale in force."""
    rows = steps.policy(context.src)
    rows = rows[rows["first"].notna()]
    if rows.empty:
        return dict(DEFAULTS)
    busiest = rows.sort_values(["updates", "scaler"], ascending=[False, True]).iloc[0]
    known = {key: busiest["first" if key == "init" else name] for key, name in NAMES.items()}
    return {key: DEFAULTS[key] if pd.isna(value) else float(value) for key, value in known.items()}


def controls(context: Context) -> list[Control]:
    """None where there is nothing to replay."""
    if replay.obstacle(context.src):
        return []
    start = policy(context)
    return [Control(key, label, default=repr(start[key]), kind="number") for key, label in NAMES.items()]


def view(context: Context) -> Any:
    """The card: figure and numbers are drawn by the browser."""
    obstacle = replay.obstacle(context.src)
    if obstacle:
        return notice(*NOTHING[obstacle])
    found = replay.rounds(context.src)
    id = {"of": "run"}
    return [
        dcc.Store(id={"type": "replay-data", **id}, data=data(context, found)),
        html.Div(
            [
                html.P(id={"type": "replay-words", **id}, className="advice", **{"aria-live": "polite"}),
                ui.button(_back(context), {"type": "replay-back", **id}, disabled=True),
            ],
            className="advice-row",
        ),
        html.Div(id={"type": "replay-numbers", **id}, className="minis", **{"aria-live": "polite"}),
        html.Div(
            dcc.Graph(
                id={"type": "replay-figure", **id}, config=GRAPH_CONFIG, style={"height": HEIGHT}
            ),
            className="graph",
            role="figure",
            **{"aria-label": "Loss scale over steps, recorded and replayed, and the share of gradients flushed."},
        ),
        html.P(
            "A replay keeps the gradients of the recorded run: it cannot know how a step more or less would have "
            "changed those that follow.",
            className="subtitle",
        ),
    ]  # fmt: skip


def _back(context: Context) -> str:
    """What the button is called that restores the policy which the card opened with."""
    recorded = steps.policy(context.src)["first"].notna().any()
    return "Back to recorded" if recorded else "Back to the defaults"


def data(context: Context, found: pd.DataFrame) -> dict[str, Any]:
    """What `assets/replay.js` reads."""
    rows = replay.runs_of_rounds(found)
    half = context.src.value("SELECT mode(autocast_dtype) FROM {steps}")
    name = "bf16" if half == "bfloat16" and not rows["scale"].isna().all() else "fp16"
    scaled = rows["scale"].notna().any()
    return {
        "rounds": {column: _plain(rows[column]) for column in rows.columns},
        "histograms": _histograms(tensors.totals(context.src), rows),
        "format": next(f for f in formats.as_json() if f["name"] == name),
        "policy": policy(context),
        "recorded": {"skipped": int(found["skipped"].sum())} if scaled else None,
        "cut": len(found) == replay.ROUNDS,
        "through": whatif.seen_through(context, "grad"),
        "figure": _figure().to_plotly_json(),
    }


def _plain(column: pd.Series) -> list[Any]:
    found: list[Any] = column.astype(object).where(column.notna(), None).tolist()
    return found


def _histograms(bins: pd.DataFrame, rows: pd.DataFrame) -> list[dict[str, Any]]:
    """One per sampled step that is a row of its own: its histogram, largest value and row."""
    read = np.flatnonzero(rows["read"].to_numpy(dtype=bool))
    places: dict[Any, int] = dict(zip(rows["step"].to_numpy()[read].tolist(), read.tolist(), strict=True))
    amax = rows["amax"].to_numpy(dtype=float)
    out = []
    for step, part in bins.groupby(bins["step"].astype(int)):
        row = places.get(step)
        if row is None:
            continue
        exponents = part["exponent"].to_numpy(dtype=int)
        low = int(exponents[0])
        counts = np.zeros(exponents[-1] - low + 1, dtype=np.int64)
        counts[exponents - low] = part["n"].to_numpy(dtype=np.int64)
        found = {"step": step, "row": row, "low": low, "amax": float(amax[row])}
        out.append({**found, "counts": counts.tolist()})
    return out


def _figure() -> Any:
    figure = base.figure(HEIGHT, left=62, top=34)
    figure.update_layout(
        xaxis={"title": {"text": "step"}, "anchor": "y2"},
        yaxis={"title": {"text": "loss scale"}, "domain": [0.42, 1.0]},
        yaxis2={"title": {"text": "% flushed"}, "domain": [0.0, 0.3], "rangemode": "tozero", "anchor": "x"},
        showlegend=True,
    )
    return figure
