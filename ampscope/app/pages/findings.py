"""Findings, one page each: claim, place, change, evidence with its query and its rows, and what would refute it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
from dash import dcc, html

from ampscope.app import tables, ui
from ampscope.app.blocks import code, diff, facts, jump, notice, prose, severity_mark
from ampscope.app.finding_view import card, coverage_body, keys, place
from ampscope.app.page import Page, Part
from ampscope.app.runs import Context
from ampscope.diagnose.diagnosis import Diagnosis
from ampscope.diagnose.finding import Evidence, Finding, Where
from ampscope.diagnose.rule import find_rule
from ampscope.errors import AmpscopeError
from ampscope.report.text import clean, number, steps
from ampscope.verify.outcome import outcome_sentence, read_outcomes

EVIDENCE_ROWS = 200


def _list(context: Context) -> Any:
    diagnosis = context.run.diagnosis()
    if not diagnosis.findings:
        return notice("No finding", diagnosis.verdict)
    return html.Div([card(context, diagnosis, f) for f in diagnosis.findings], className="finding-cards")


def _coverage(context: Context) -> Any:
    return coverage_body(context.run.diagnosis().coverage)


def _chosen(context: Context) -> Finding:
    """Raises AmpscopeError when the run has no finding of that key."""
    diagnosis = context.run.diagnosis()
    for key, finding in zip(keys(diagnosis), diagnosis.findings, strict=True):
        if key == context.view.rest:
            return finding
    raise AmpscopeError(f"This run has no finding {context.view.rest}; the list of findings is at the left.")


def _claim(context: Context) -> Any:
    finding = _chosen(context)
    return [
        html.P(jump("All findings", context.view.link("/findings")), className="crumb"),
        html.Div(
            [
                severity_mark(finding.severity),
                html.Span(f"{finding.code} {finding.name}", className="finding-code"),
            ],
            className="finding-head",
        ),
        html.H2(prose(finding.claim), className="claim"),
        facts(_place(context, finding.where)),
        _others(context.run.diagnosis(), finding),
    ]


def _place(context: Context, where: Where) -> Sequence[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    if where.tensor:
        page = "/activations" if ":" in where.tensor else "/gradients"
        rows.append(("tensor", jump(where.tensor, context.view.link(page, tensor=where.tensor))))
    for name, value in (("module", where.module), ("op", where.op)):
        if value:
            rows.append((name, value))
    if where.file:
        rows.append(("line", f"{where.file}:{where.line}" if where.line else where.file))
    if where.steps:
        rows.append(("seen at", steps(where.steps)))
    return rows


def _others(diagnosis: Diagnosis, finding: Finding) -> Any:
    if not finding.symptoms:
        return None
    return html.Div(
        [html.H3("Explains also"), html.Ul([html.Li(prose(s)) for s in finding.symptoms])],
        className="symptoms",
    )


def _change(context: Context) -> Any:
    finding = _chosen(context)
    pieces: list[Any] = [html.P(prose(finding.recommendation), className="recommendation")]
    if finding.change.diff:
        pieces.append(diff(finding.change.diff))
    if finding.change.set:
        command = _trial(finding.change.set, context.run.trace.info.command)
        pieces += [html.P("Try it without an edit:", className="muted"), code(command)]
    pieces += _verification(context, finding)
    if finding.falsifier:
        pieces.append(
            html.P([html.Strong("It would be wrong if: "), *prose(finding.falsifier)], className="falsifier")
        )
    return pieces


def _verification(context: Context, finding: Finding) -> list[Any]:
    """What trying the advice showed, or how to try it."""
    sentence = outcome_sentence(read_outcomes(context.run.trace.path), finding)
    if sentence:
        return [html.P(prose(sentence), className="outcome")]
    if not finding.change.set:
        return []
    path = context.run.trace.path
    here = Path.cwd()
    named = path.relative_to(here) if path.is_relative_to(here) else path
    command = shlex.join(["ampscope", "verify", str(named), finding.code])
    return [html.P("Have it tried and measured:", className="muted"), code(command)]


def _trial(changes: Mapping[str, str], command: Sequence[str]) -> str:
    """The recorded command with the overrides of a finding; `ampscope run` supplies the interpreter itself."""
    words = list(command)
    if words and re.fullmatch(r"python[\d.]*", words[0].replace("\\", "/").rsplit("/", 1)[-1]):
        words = words[1:]
    options = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
    return shlex.join(["ampscope", "run", *options, *words])


def _evidence(context: Context) -> Any:
    finding = _chosen(context)
    if not finding.evidence:
        return notice("This finding rests on the order of calls alone", place(finding.where))
    return [_one(context, e) for e in finding.evidence]


def _one(context: Context, evidence: Evidence) -> Any:
    value = evidence.value
    shown = number(value) + (f" {evidence.unit}" if evidence.unit else "")
    head = html.Div(
        [
            html.Span(clean(evidence.metric), className="evidence-metric"),
            html.Span(clean(shown), className="evidence-value"),
            html.Span(evidence.basis, className="basis"),
        ],
        className="evidence-head",
    )
    if not evidence.query:
        return html.Div(head, className="evidence")
    return html.Div(
        [head, ui.details("Query and its rows", [code(evidence.query), _result(context, evidence.query)])],
        className="evidence",
    )


def _result(context: Context, query: str) -> Any:
    try:
        rows = context.run.cache.frame(
            f"SELECT * FROM ({query.rstrip().rstrip(';')}) LIMIT {EVIDENCE_ROWS}", ()
        )
    except (duckdb.Error, AmpscopeError) as error:
        return notice("The query could not be run here", str(error), "warning")
    return _grid(rows)


def _grid(rows: pd.DataFrame) -> Any:
    shown = rows.copy(deep=False)
    shown.columns = [str(c) for c in rows.columns]
    columns = []
    for name in shown.columns:
        numeric = pd.api.types.is_numeric_dtype(shown[name]) and not pd.api.types.is_bool_dtype(shown[name])
        if not numeric:
            shown[name] = shown[name].map(lambda v: None if v is None else str(v))
        columns.append(tables.Col(name, name, "number" if numeric else "text"))
    return tables.grid(shown, columns, "Rows of the evidence")


def _explain(context: Context) -> Any:
    rule = find_rule(_chosen(context).code)
    if rule is None:
        return notice("There is no page for this diagnosis")
    return dcc.Markdown(rule.page, className="prose", dangerously_allow_html=False, link_target="_blank")


def _parts(context: Context) -> list[Part]:
    judged = partial(Part, judged=True)
    if not context.view.rest:
        about = "What was checked, and what could not be."
        return [
            judged("list", _list, bare=True, height=240),
            judged("coverage", _coverage, "Coverage", about, height=160),
        ]
    about = "Each number with the query over the trace that gives it."
    return [
        judged("claim", _claim, height=200),
        judged("change", _change, "What to change", width=6, height=240),
        judged("evidence", _evidence, "Evidence", about, width=6, height=240),
        judged("explain", _explain, "About this diagnosis", height=200),
    ]


PAGE = Page(slug="findings", title="Findings", icon="findings", parts=_parts)
