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
    """The shortest form of what to change: options that try it, or the line to write."""
    if finding.change.set:
        return (
            "ampscope run --set " + " --set ".join(f"{k}={v}" for k, v in finding.change.set.items()) + " …"
        )
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
            _shortest(finding, change) if change else None,
            jump("Show evidence", href, "jump finding-more"),
        ],
        className=f"finding finding-{finding.severity}",
    )


def _shortest(finding: Finding, change: str) -> Any:
    label = "Or try it without an edit: " if finding.change.diff else "Try it without an edit: "
    if not finding.change.set:
        label = "In code: "
    return html.P([label, html.Code(clean(change), className="finding-set")], className="finding-try")


def coverage_line(context: Context, diagnosis: Diagnosis) -> Any:
    """What was checked, in one line that opens."""
    found = diagnosis.coverage
    told = {f.code for f in diagnosis.findings}
    folded = sum(code not in told for code in found.fired)
    explained = f" ({folded} more explained by {'it' if len(told) == 1 else 'them'})" if folded else ""
    checked = len(found.fired) + len(found.clean)
    total = checked + len(found.not_measurable) + len(found.silenced)
    line = (
        f"Checked {checked} of {plural(total, 'diagnosis').replace('diagnosiss', 'diagnoses')}: "
        f"{len(found.fired) - folded} found{explained}, {len(found.clean)} clean, "
        f"{len(found.not_measurable)} not measurable"
    )
    return ui.details(line, coverage_body(found))


def _by_reason(found: Coverage) -> dict[str, list[str]]:
    reasons: dict[str, list[str]] = {}
    for item in found.not_measurable:
        reasons.setdefault(item.why, []).append(item.code)
    return reasons


def coverage_body(found: Coverage) -> Any:
    rows: list[Any] = []
    if found.fired:
        rows += [html.Dt("found"), html.Dd(", ".join(found.fired))]
    if found.clean:
        rows += [html.Dt("clean"), html.Dd(", ".join(found.clean))]
    for why, codes in _by_reason(found).items():
        rows += [html.Dt("not measurable"), html.Dd(f"{', '.join(codes)}: {clean(why)}")]
    for muted in found.silenced:
        rows += [html.Dt(muted.code), html.Dd(f"silenced: {clean(muted.reason)}")]
    return html.Dl(rows, className="facts")
