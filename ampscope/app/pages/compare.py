"""Compare: two runs joined by step and by tensor name. It says what `ampscope compare` says, and draws it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas as pd
from dash import html

from ampscope.app import tables
from ampscope.app.blocks import graph, notice
from ampscope.app.explorer import ROLE_NAMES
from ampscope.app.figures import versus
from ampscope.app.figures.base import power
from ampscope.app.page import Control, Page, Part, chosen
from ampscope.app.queries import compare, order, steps, summary, timing
from ampscope.app.queries.source import Source
from ampscope.app.runs import Context, OpenRun
from ampscope.app.state import View
from ampscope.compare.config import differences
from ampscope.compare.divergence import Divergence, join
from ampscope.compare.headline import Headline, headline
from ampscope.compare.losses import curves
from ampscope.report.text import clean, number, plural, seconds, share, size

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


def _other(context: Context) -> OpenRun:
    return context.runs.get(chosen(_controls(context)[0], context))


def _role(context: Context) -> str:
    return chosen(_controls(context)[1], context)


@dataclass(frozen=True)
class Side:
    """One of the two runs, for the table."""

    head: Headline
    low_precision: float | None
    overhead: float | None

    @classmethod
    def of(cls, run: OpenRun, src: Source) -> Side:
        return cls(headline(run.trace), summary.low_precision(src).value, timing.overhead(src))


FACTS: tuple[tuple[str, Callable[[Side], str]], ...] = (
    ("autocast", lambda s: s.head.autocast_dtype or "off"),
    ("step time, median", lambda s: seconds(s.head.step_s)),
    ("loss, median of the last 8", lambda s: number(s.head.last_loss)),
    ("losses that are NaN or inf", lambda s: number(s.head.bad_losses)),
    ("steps", lambda s: number(s.head.steps)),
    ("skipped steps", lambda s: number(s.head.skipped)),
    ("loss scale at the end", lambda s: power(s.head.scale)),
    ("work in low precision", lambda s: share(s.low_precision)),
    ("peak memory", lambda s: f"{size(s.head.memory)}{' on the device' if s.head.on_device else ''}"),
    ("ampscope's own share", lambda s: share(s.overhead)),
)


def _facts(context: Context) -> Any:
    run = _other(context)
    one, two = Side.of(context.run, context.src), Side.of(run, run.source(View()))
    rows = [
        html.Tr([html.Th(label, scope="row"), html.Td(show(one)), html.Td(show(two))])
        for label, show in FACTS
    ]
    names = [html.Th(clean(name), scope="col") for name in (context.run.name, run.name)]
    return html.Table([html.Thead(html.Tr([html.Td(""), *names])), html.Tbody(rows)], className="versus")


def _losses(context: Context) -> Any:
    run = _other(context)
    one, two = steps.loss(context.src), steps.loss(run.source(View()))
    if one.empty and two.empty:
        return notice("Neither run has a finite loss")
    found = curves(context.run.trace, run.trace)
    text = "They share no step with a finite loss."
    if found.distance is not None:
        text = f"Over {plural(len(found.steps), 'common step')} they differ by {share(found.distance)} on average."
    names = (context.run.name, run.name)
    return [
        graph(versus.losses(one, two, names), "Loss of both runs over steps."),
        html.P(text, className="subtitle"),
    ]


def _settings(context: Context) -> Any:
    run = _other(context)
    found = differences(context.run.trace, run.trace)
    if not found:
        return notice(
            "They were set up alike", "Same command, versions, machine, precision, scaler and optimizer."
        )
    rows = [
        html.Tr([html.Th(s.name, scope="row"), html.Td(clean(s.one)), html.Td(clean(s.two))]) for s in found
    ]
    names = [html.Th(clean(name), scope="col") for name in (context.run.name, run.name)]
    return html.Table(
        [html.Thead(html.Tr([html.Td(""), *names])), html.Tbody(rows)], className="versus versus-text"
    )


def _joined(context: Context) -> tuple[pd.DataFrame, list[str]]:
    found = compare.ratios(context.src, _other(context).source(View()), _role(context))
    return found, order.forward_order(context.src, found["name"])


def _first(context: Context) -> Any:
    joined = join(context.run.trace, _other(context).trace)
    if not joined.steps or not joined.tensors:
        return None
    compared = f"{plural(joined.tensors, 'tensor')} at {plural(joined.steps, 'step')}"
    if joined.first is None:
        return html.P(
            f"No tensor differs by more than rounding explains ({compared} compared).", className="advice"
        )
    more = f" {plural(len(joined.more), 'other tensor')} differ at that step too." if joined.more else ""
    return html.P([*_sentence(joined.first), more], className="advice")


def _sentence(d: Divergence) -> list[Any]:
    return [
        f"The first to differ by more than rounding explains, at step {d.step}: ",
        html.Code(clean(d.name)),
        f" ({ROLE_NAMES.get(d.role, d.role)}): {d.why}.",
    ]


def _tensors(context: Context) -> Any:
    role = _role(context)
    found, names = _joined(context)
    if found.empty:
        return notice(
            f"No {ROLE_NAMES[role]} to compare",
            "The two runs read no tensor of the same name at the same step. `--every 1` samples every step of both.",
        )
    about = f"Ratio of {ROLE_NAMES[role]} between the two runs over common steps."
    return [_first(context), graph(versus.ratio_heat(found, names), about)]


def _table(context: Context) -> Any:
    found, names = _joined(context)
    if found.empty:
        return notice("Nothing to compare", "There is no common step: see above.")
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
        tables.Col("worst", "largest difference, binades", "number", 210),
        tables.Col("step", "at step", "count", 110),
    ]
    return tables.grid(rows, columns, "Tensors of both runs in forward order", height=360)


def _parts(context: Context) -> list[Part]:
    if not _others(context):
        return [Part("alone", lambda c: notice("Nothing to compare with", ALONE), bare=True)]
    note = "True magnitudes, the loss scale taken out. Forward order."
    return [
        Part("facts", _facts, "Side by side", width=5, height=340),
        Part("losses", _losses, "Loss", width=7, height=340),
        Part("settings", _settings, "What was set up differently", height=120),
        Part("tensors", _tensors, "Same tensor, same step", note, height=420),
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
