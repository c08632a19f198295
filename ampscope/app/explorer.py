"""Heat map of tensors over steps, then one tensor over steps with the what-if: shared by the pages of tensor roles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from dash import html

from ampscope.app import formats, whatif
from ampscope.app.blocks import graph, notice, pickable
from ampscope.app.figures import heat
from ampscope.app.page import Control, Part, chosen
from ampscope.app.queries import order, tensors
from ampscope.app.queries.tensors import Held
from ampscope.app.runs import Context
from ampscope.errors import AmpscopeError

ROWS = 400
"""Most tensors in one heat map."""

VISIBLE = 0.01
"""A share below this is not what a page opens with."""

ROLE_NAMES = {
    "grad": "parameter gradients",
    "activation_grad": "activation gradients",
    "activation": "activations",
    "weight": "weights",
    "update": "updates",
    "exp_avg": "first moment (exp_avg)",
    "exp_avg_sq": "second moment (exp_avg_sq)",
    "momentum": "momentum",
    "buffer": "buffers",
}
STAGE_NAMES = {"pre_unscale": "scaled", "pre_clip": "unscaled", "post_clip": "at the optimizer"}


@dataclass(frozen=True)
class Metric:
    """What a heat map shows: a value per row of `queries.tensors.heat`, and how it is coloured."""

    label: str
    kind: str
    value: Callable[[pd.DataFrame], pd.Series]
    low: bool = False
    """Needs the columns of `heat` that are slow to get."""


def nonzero(rows: pd.DataFrame) -> pd.Series:
    """Finite elements that are not zero; null where there are none."""
    count = rows["numel"] - rows["zeros"] - rows["nan"] - rows["inf"]
    return count.where(count > 0)


def _headroom(rows: pd.DataFrame) -> pd.Series:
    room = 65504.0 / rows["amax"].where(rows["amax"] > 0)
    return pd.Series(np.log2(room.to_numpy(dtype=float)), index=rows.index)


METRICS = {
    "flushed": Metric("below fp16 (→ 0)", "harm", lambda f: f["flushed"] / nonzero(f), True),
    "subnormal": Metric("fp16 subnormal", "harm", lambda f: f["subnormal"] / nonzero(f), True),
    "zeros": Metric("exact zeros", "part", lambda f: f["zeros"] / f["numel"]),
    "amax": Metric("largest |x|", "log2", lambda f: f["amax"]),
    "rms": Metric("root mean square", "log2", lambda f: (f["sumsq"] / f["numel"]) ** 0.5),
    "headroom": Metric("binades below 65504", "binades", _headroom),
    "nonfinite": Metric("NaN or inf", "harm", lambda f: (f["nan"] + f["inf"]) / f["numel"]),
}
"""By the value of the query parameter `stat`."""


@dataclass(frozen=True)
class Explorer:
    """One page's explorer over `roles`; `stats` are the metrics it may open with, most telling first."""

    roles: tuple[str, ...]
    stats: tuple[str, ...]
    empty: str

    def kinds(self, context: Context) -> list[Held]:
        return [h for h in tensors.held(context.src) if h.role in self.roles]

    def of_control(self, context: Context) -> Control:
        kinds = self.kinds(context)
        options = tuple((_value(h), _label(h, kinds)) for h in kinds)
        kind = "segmented" if len(options) <= 2 else "select"
        return Control("of", "Tensors", options, options[0][0] if options else "", kind, wide=True)

    def chosen(self, context: Context) -> Held:
        """Raises AmpscopeError when the trace holds none of the roles."""
        kinds = self.kinds(context)
        if not kinds:
            raise AmpscopeError(self.empty)
        value = chosen(self.of_control(context), context)
        return next(h for h in kinds if _value(h) == value)

    def stat_control(self, context: Context) -> Control:
        options = tuple((key, m.label) for key, m in METRICS.items())
        return Control("stat", "Shows", options, self.default_stat(context))

    def default_stat(self, context: Context) -> str:
        """The first of `stats` of which there is something to see; the last one otherwise."""
        rows = self.opening(context, self.chosen(context))
        for stat in self.stats[:-1]:
            if float(METRICS[stat].value(rows).max()) > VISIBLE:
                return stat
        return self.stats[-1]

    def opening(self, context: Context, which: Held) -> pd.DataFrame:
        """The rows from which it is told what the page opens with."""
        return tensors.heat(context.src, which.role, which.stage, any(METRICS[s].low for s in self.stats))

    def names(self, context: Context, which: Held) -> list[str]:
        rows = self.opening(context, which)
        return order.forward_order(context.src, rows["name"])

    def tensor_control(self, context: Context) -> Control:
        if not self.kinds(context):
            return Control("tensor", "Tensor")
        names = self.names(context, self.chosen(context))
        return Control(
            "tensor", "Tensor", tuple((n, n) for n in names), self.default_tensor(context, names), wide=True
        )

    def default_tensor(self, context: Context, names: Sequence[str]) -> str:
        """The tensor most worth a look by the metric that the page opens with."""
        rows = self.opening(context, self.chosen(context))
        metric = METRICS[self.default_stat(context)]
        value = metric.value(rows).astype(float)
        if metric.kind == "binades":
            value = -value
        score = value.groupby(rows["name"]).max().reindex(list(names)).fillna(-np.inf)
        return str(score.idxmax()) if len(score) and np.isfinite(score.max()) else (names[0] if names else "")

    def top_controls(self, context: Context) -> list[Control]:
        return [self.of_control(context), self.stat_control(context)] if self.kinds(context) else []

    def tensor_controls(self, context: Context) -> list[Control]:
        if not self.kinds(context):
            return []
        scale = repr(whatif.recorded_scale(context)) if self.scaled(context) else "1.0"
        return [
            self.tensor_control(context),
            Control("format", "What if: format", formats.options(), formats.FORMATS[0].name),
            Control("scale", "scale", default=scale, kind="scale"),
        ]

    def scaled(self, context: Context) -> bool:
        return self.chosen(context).role in ("grad", "activation_grad")

    def heat_map(self, context: Context) -> Any:
        which = self.chosen(context)
        metric = METRICS[chosen(self.stat_control(context), context)]
        rows = self.opening(context, which)
        if metric.low and "flushed" not in rows:
            rows = tensors.heat(context.src, which.role, which.stage)
        names = order.forward_order(context.src, rows["name"])
        shown = most_telling(rows, names, metric.value(rows), metric.kind)
        rows = rows[rows["name"].isin(shown)]
        bad = (rows["nan"] + rows["inf"]) / rows["numel"]
        data = heat.matrix(rows, shown, metric.value(rows), bad, nonzero(rows).isna() & (bad == 0))
        selected = context.view.choice("tensor", names, self.default_tensor(context, names))
        figure = heat.heat(data, metric.kind, metric.label, selected)
        pickable(figure, "tensor", "y", data.names)
        about = f"Heat map, {len(names)} tensors in forward order by step: {metric.label} of {ROLE_NAMES[which.role]}."
        return [graph(figure, about, {"type": "pick", "of": "tensor"}), _legend(bad, len(shown), len(names))]

    def one_tensor(self, context: Context) -> Any:
        which = self.chosen(context)
        names = self.names(context, which)
        name = context.view.choice("tensor", names, self.default_tensor(context, names))
        data = tensors.history(context.src, which.role, which.stage, name)
        if data is None:
            return notice("Nothing was recorded for this tensor")
        at = context.view.integer("at")
        scale = whatif.recorded_scale(context) if self.scaled(context) else 1.0
        store = whatif.tensor_data(data, at, scale, whatif.seen_through(context, which.role))
        return whatif.tensor_view(context, name, data, store, at)


def _value(h: Held) -> str:
    return f"{h.role}.{h.stage}" if h.stage else h.role


def _label(h: Held, kinds: Sequence[Held]) -> str:
    alone = sum(k.role == h.role for k in kinds) == 1
    name = ROLE_NAMES.get(h.role, h.role)
    return name if alone or not h.stage else f"{name} ({STAGE_NAMES.get(h.stage, h.stage)})"


def most_telling(rows: pd.DataFrame, names: Sequence[str], value: pd.Series, kind: str) -> list[str]:
    """`names`, or of more than `ROWS` those with the most extreme values, in the same order."""
    if len(names) <= ROWS:
        return list(names)
    score = -value if kind == "binades" else value
    kept = set(
        score.groupby(rows["name"]).max().sort_values(ascending=False, na_position="last").index[:ROWS]
    )
    return [name for name in names if name in kept]


def _legend(bad: pd.Series, shown: int, total: int) -> Any:
    keys = [("cell-none", "not measured"), ("cell-zero", "none, or all zero")]
    if (bad > 0).any():
        keys.append(("cell-bad", "holds NaN or inf"))
    marks: list[Any] = [html.Span([html.I(className=f"cell {c}"), text]) for c, text in keys]
    if shown < total:
        marks.append(
            html.Span(f"The {shown} of {total} tensors with the most extreme values; the list below has all.")
        )
    return html.Div(marks, className="legend")


def parts(
    explorer: Explorer, window: Callable[[Context], Any] | None = None
) -> Callable[[Context], list[Part]]:
    """The cards of a page that is an explorer; `window` adds the one over all tensors."""

    def build(context: Context) -> list[Part]:
        if not explorer.kinds(context):
            return [Part("empty", lambda c: notice("No tensors were recorded", explorer.empty), bare=True)]
        cards = [
            Part(
                "heat",
                explorer.heat_map,
                "Tensor × step",
                "Forward order from the top. Choose a tensor here or below.",
                height=420,
            )
        ]
        cards.append(
            Part(
                "tensor", explorer.one_tensor, "One tensor", "", height=900, controls=explorer.tensor_controls
            )
        )
        if window is not None:
            cards.append(
                Part(
                    "window",
                    window,
                    "Which loss scale fits all of them",
                    f"One for the whole run: nothing overflows, each tensor keeps {100 * (1 - whatif.EPSILON):g} %.",
                    height=380,
                )
            )
        return cards

    return build
