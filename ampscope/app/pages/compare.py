"""Compare: two runs joined by step and by tensor name, and the first tensor whose magnitude differs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
from dash import html

from ampscope.app import tables
from ampscope.app.blocks import graph, notice
from ampscope.app.explorer import ROLE_NAMES
from ampscope.app.figures import versus
from ampscope.app.page import Control, Page, Part, chosen
from ampscope.app.queries import compare, order, steps
from ampscope.app.queries.compare import Headline
from ampscope.app.queries.source import Source
from ampscope.app.runs import Context
from ampscope.app.state import View
from ampscope.report.text import clean, number, power, seconds, share, size

ALONE = "Only one run is open. Name two to compare them: `ampscope view RUN_A RUN_B`."
ROLES = ("activation", "grad", "activation_grad", "weight")


def _others(context: Context) -> list[str]:
    return [name for name in context.runs.names if name != context.run.name]


def _controls(context: Context) -> list[Control]:
    others = _others(context)
    if not others:
        return []
    return [
        Control("with", "With", tuple((n, n) for n in others), others[0], wide=True),
        Control("of", "Tensors", tuple((r, ROLE_NAMES[r]) for r in ROLES), ROLES[0]),
    ]


def _other(context: Context) -> tuple[str, Source]:
    name = chosen(_controls(context)[0], context)
    return name, context.runs.get(name).source(View())


def _role(context: Context) -> str:
    return chosen(_controls(context)[1], context)


def _facts(context: Context) -> Any:
    name, other = _other(context)
    one, two = compare.headline(context.src), compare.headline(other)
    both = compare.losses(context.src, other)
    distance = compare.loss_distance(both)
    rows = [
        html.Tr([html.Th(label, scope="row"), html.Td(show(one)), html.Td(show(two))]) for label, show in ROWS
    ]
    head = html.Tr(
        [html.Td(""), html.Th(clean(context.run.name), scope="col"), html.Th(clean(name), scope="col")]
    )
    text = "They share no step with a finite loss."
    if distance is not None:
        text = f"Over {len(both)} common steps the losses differ by {share(distance)} on average."
    return [
        html.Table([html.Thead(head), html.Tbody(rows)], className="versus"),
        html.P(text, className="subtitle"),
    ]


ROWS: tuple[tuple[str, Callable[[Headline], str]], ...] = (
    ("autocast", lambda h: h.precision),
    ("step time, median", lambda h: seconds(h.step_time)),
    ("loss, mean of the last 10 steps", lambda h: number(h.last_loss)),
    ("segments", lambda h: number(h.steps)),
    ("skipped steps", lambda h: number(h.skipped)),
    ("loss scale at the end", lambda h: power(h.scale)),
    ("work in low precision", lambda h: share(h.low_precision)),
    ("peak memory", lambda h: size(h.memory)),
    ("ampscope's own share", lambda h: share(h.overhead)),
)


def _losses(context: Context) -> Any:
    name, other = _other(context)
    one, two = steps.loss(context.src), steps.loss(other)
    if one.empty and two.empty:
        return notice("Neither run has a finite loss")
    return graph(versus.losses(one, two, (context.run.name, name)), "Loss of both runs over steps.")


def _joined(context: Context) -> tuple[pd.DataFrame, list[str]]:
    _, other = _other(context)
    found = compare.ratios(context.src, other, _role(context))
    return found, order.forward_order(context.src, found["name"])


def _tensors(context: Context) -> Any:
    role = _role(context)
    found, names = _joined(context)
    if found.empty:
        return notice(
            f"No {ROLE_NAMES[role]} to compare",
            "The two runs read no tensor of the same name at the same step. `--every 1` samples every step of both.",
        )
    first = compare.first_divergence(found, names)
    text: Any = f"All {len(names)} tensors agree within 5 % at every common step."
    if first is not None:
        text = [
            "First to differ by more than 5 %: ",
            html.Code(clean(first.name)),
            f" at step {first.step}, root mean square ",
            f"{number(first.one)} against {number(first.two)}.",
        ]
    return [
        html.P(text, className="advice"),
        graph(
            versus.ratio_heat(found, names),
            f"Ratio of {ROLE_NAMES[role]} between the two runs over common steps.",
        ),
    ]


def _table(context: Context) -> Any:
    found, names = _joined(context)
    if found.empty:
        return notice("Nothing to compare")
    last = found.sort_values("step").groupby("name").last()
    worst = found.assign(size=found["log2"].abs()).sort_values("size").groupby("name").last()
    rows = pd.DataFrame(
        {
            "name": names,
            "one": last["one"].reindex(names).to_numpy(),
            "two": last["two"].reindex(names).to_numpy(),
            "worst": worst["log2"].reindex(names).to_numpy(),
            "step": worst["step"].reindex(names).to_numpy(),
        }
    )
    columns = [
        tables.Col("name", "tensor"),
        tables.Col("one", "first run, rms", "number", 150),
        tables.Col("two", "second run, rms", "number", 150),
        tables.Col("worst", "largest difference, binades", "number", 200),
        tables.Col("step", "at step", "count", 110),
    ]
    return tables.grid(rows, columns, "Tensors of both runs in forward order", height=360)


def _parts(context: Context) -> list[Part]:
    if not _others(context):
        return [Part("alone", lambda c: notice("Nothing to compare with", ALONE), bare=True)]
    return [
        Part("facts", _facts, "Side by side", width=5, height=340),
        Part("losses", _losses, "Loss", width=7, height=340),
        Part(
            "tensors",
            _tensors,
            "Same tensor, same step",
            "True magnitudes, the loss scale taken out. Forward order.",
            height=420,
        ),
        Part("table", _table, "At the last common step", height=360),
    ]


PAGE = Page(
    slug="compare",
    title="Compare",
    icon="compare",
    lead="Two runs of the same model, joined by step and by tensor name.",
    parts=_parts,
    controls=_controls,
)
