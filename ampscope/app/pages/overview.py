"""The first screen: is the run healthy, what to change. Verdict, findings, four numbers, scale and loss, coverage."""

from __future__ import annotations

from typing import Any

from dash import html

from ampscope.app import downloads
from ampscope.app.blocks import graph, jump, notice, prose, severity_mark, stat
from ampscope.app.figures import course
from ampscope.app.finding_view import card, coverage_line, link
from ampscope.app.page import Page, Part
from ampscope.app.queries import steps, summary, timing
from ampscope.app.queries.summary import Number
from ampscope.app.runs import Context
from ampscope.diagnose.diagnosis import Diagnosis
from ampscope.report.text import clean, plural, seconds, share

CARDS = 4


def _verdict(context: Context) -> Any:
    diagnosis = context.run.diagnosis()
    faults = diagnosis.at_or_above("warning")
    shown = faults[:CARDS]
    tone, word = _health(diagnosis)
    return [
        html.Div(
            [severity_mark(word), html.P(prose(diagnosis.verdict), className="verdict-text")],
            className=f"verdict verdict-{tone}",
            role="status",
        ),
        html.Div([card(context, diagnosis, f) for f in shown], className="finding-cards") if shown else None,
        _further(context, diagnosis, len(faults) - len(shown)),
        coverage_line(context, diagnosis),
    ]


def _health(diagnosis: Diagnosis) -> tuple[str, str]:
    """(tone, word): notes of severity info make no run unhealthy; symptoms that nothing explains are not health."""
    if diagnosis.at_or_above("warning"):
        return str(diagnosis.worst), str(diagnosis.worst)
    return ("info", "unexplained") if diagnosis.symptoms else ("ok", "healthy")


def _further(context: Context, diagnosis: Diagnosis, left_out: int) -> Any:
    """What has no card: further faults, and what is only worth knowing."""
    pieces: list[Any] = []
    if left_out > 0:
        pieces.append(jump(plural(left_out, "more finding"), context.view.link("/findings")))
    notes = [f for f in diagnosis.findings if f.severity == "info"]
    if notes:
        pieces.append(html.Span("Worth knowing:"))
        pieces += [jump(f"{f.code} {f.name}", link(context, diagnosis, f)) for f in notes]
    return html.P(pieces, className="further") if pieces else None


def _flushed(context: Context) -> Any:
    return _share_tile("Gradients flushed", summary.flushed(context.src), bad=0.05)


def _absorbed(context: Context) -> Any:
    return _share_tile("Updates absorbed", summary.absorbed(context.src), bad=0.2)


def _low(context: Context) -> Any:
    return _share_tile("Work in low precision", summary.low_precision(context.src))


def _step_time(context: Context) -> Any:
    time = summary.step_time(context.src)
    return stat("Step time", "–" if time.value is None else seconds(time.value), time.note, time.basis)


def _share_tile(label: str, found: Number, bad: float | None = None) -> Any:
    tone = "warning" if bad is not None and found.value is not None and found.value >= bad else ""
    return stat(label, share(found.value), found.note, found.basis, tone)


def _course(context: Context) -> Any:
    src = context.src
    loss, bad = steps.loss(src), steps.bad_losses(src)
    scale = steps.scale(src)
    if loss.empty and bad.empty and scale.empty:
        return notice(
            "No step was recorded yet",
            "A step appears here once the script has run a backward and an optimizer step."
            if context.run.live
            else "The script ended before its first optimizer step; the findings say what is known.",
        )
    figure = course.course(loss, scale, steps.skips(src), bad)
    shown = graph(figure, "Loss scale with skipped steps above, loss below, on one step axis.")
    if scale.empty:
        return [
            shown,
            html.P(
                "No enabled GradScaler took part in this run, so there is no loss scale.",
                className="subtitle",
            ),
        ]
    return shown


def _overhead(context: Context) -> Any:
    own = timing.overhead(context.src)
    if own is None:
        return html.P("ampscope's own cost was not measured in this run.", className="muted")
    settings = context.run.trace.info.settings
    budget, every = settings.get("budget"), settings.get("every")
    against = f" (budget {budget:g} %)" if isinstance(budget, int | float) else ""
    if isinstance(every, int):
        against = f" (sampled every {plural(every, 'step')}, as asked)"
    rows = timing.ledger(context.src)
    most = f" Most of it: {clean(str(rows['collector'].iloc[0]))}." if len(rows) else ""
    return html.P(
        [
            f"ampscope itself took {share(own)} of the wall time of the steps{against}.{most} ",
            jump("ledger", context.view.link("/run")),
        ],
        className="muted footnote",
    )


def _reports(context: Context) -> Any:
    one, two = (downloads.link(context, f) for f in downloads.REPORTS)
    return html.P(["Report for a ticket, redacted: ", one, ", ", two], className="muted footnote")


def _parts(context: Context) -> list[Part]:
    return [
        Part("verdict", _verdict, bare=True, height=180, judged=True),
        # Each by itself: what needs no histogram is there at once.
        Part("flushed", _flushed, bare=True, width=3, height=104),
        Part("absorbed", _absorbed, bare=True, width=3, height=104),
        Part("low", _low, bare=True, width=3, height=104),
        Part("time", _step_time, bare=True, width=3, height=104),
        Part(
            "course",
            _course,
            "Loss scale and loss",
            "Skipped steps are marked. NaN and inf have a row of their own.",
            height=380,
        ),
        Part("overhead", _overhead, bare=True, height=24),
        Part("reports", _reports, bare=True, height=24),
    ]


PAGE = Page(slug="", title="Overview", icon="overview", parts=_parts)
