"""How a finding looks: as a card of the first screen, and the line that says what was checked."""

from __future__ import annotations

from typing import Any

from dash import html

from ampscope.app import ui
from ampscope.app.blocks import jump, prose, severity_mark
from ampscope.app.runs import Context
from ampscope.diagnose.diagnosis import Coverage, Diagnosis
from ampscope.diagnose.finding import Finding, Where
from ampscope.report.text import clean, plural, steps


def keys(diagnosis: Diagnosis) -> list[str]:
    """One per finding, for its address: the code, numbered from the second of the same code on."""
    seen: dict[str, int] = {}
    out = []
    for finding in diagnosis.findings:
        seen[finding.code] = seen.get(finding.code, 0) + 1
        n = seen[finding.code]
        out.append(finding.code if n == 1 else f"{finding.code}.{n}")
    return out


def link(context: Context, diagnosis: Diagnosis, finding: Finding) -> str:
    at = next(i for i, f in enumerate(diagnosis.findings) if f is finding)
    return context.view.link(f"/findings/{keys(diagnosis)[at]}")


def place(where: Where) -> str:
    """`blocks.0.mlp, train.py:41, steps 3–9`: what is known of the place."""
    name = where.tensor or where.module
    file = None
    if where.file:
        file = where.file.replace("\\", "/").rsplit("/", 1)[-1] + (f":{where.line}" if where.line else "")
    pieces = [name, where.op, file, steps(where.steps)]
    return ", ".join(clean(p) for p in pieces if p)


def change_sentence(finding: Finding) -> str:
    """The shortest form of what to change."""
    if finding.change.set:
        return "--set " + " --set ".join(f"{k}={v}" for k, v in finding.change.set.items())
    added = [
        row[1:].strip()
        for row in finding.change.diff.splitlines()
        if row.startswith("+") and row[:3] != "+++"
    ]
    return added[0] if added else ""


def card(context: Context, diagnosis: Diagnosis, finding: Finding) -> Any:
    """Severity, claim with its number, change, and the way to the evidence."""
    href = link(context, diagnosis, finding)
    change = change_sentence(finding)
    where = place(finding.where)
    return html.Article(
        [
            html.Div(
                [
                    severity_mark(finding.severity),
                    html.Span(f"{finding.code} {finding.name}", className="finding-code"),
                ],
                className="finding-head",
            ),
            html.P(prose(finding.claim), className="finding-claim"),
            html.P(where, className="finding-where") if where else None,
            html.P([html.Strong("Change: "), *prose(finding.recommendation)], className="finding-change"),
            html.Code(clean(change), className="finding-set") if change else None,
            jump("Show evidence", href, "jump finding-more"),
        ],
        className=f"finding finding-{finding.severity}",
    )


def coverage_line(context: Context, diagnosis: Diagnosis) -> Any:
    """What was checked, in one line that opens."""
    found = diagnosis.coverage
    checked = len(found.fired) + len(found.clean)
    total = checked + len(found.not_measurable) + len(found.silenced)
    line = (
        f"Checked {checked} of {plural(total, 'diagnosis').replace('diagnosiss', 'diagnoses')}: "
        f"{len(found.fired)} found, {len(found.clean)} clean, {len(found.not_measurable)} not measurable"
    )
    return ui.details(line, coverage_body(found))


def coverage_body(found: Coverage) -> Any:
    rows: list[Any] = []
    if found.fired:
        rows += [html.Dt("found"), html.Dd(", ".join(found.fired))]
    if found.clean:
        rows += [html.Dt("clean"), html.Dd(", ".join(found.clean))]
    for item in found.not_measurable:
        rows += [html.Dt(item.code), html.Dd(f"not measurable, because {clean(item.why)}")]
    for muted in found.silenced:
        rows += [html.Dt(muted.code), html.Dd(f"silenced: {clean(muted.reason)}")]
    return html.Dl(rows, className="facts")
