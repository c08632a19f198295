"""The report as Markdown for the body of an issue: readable without images, and never longer than the limit.

When it is too long the least telling parts go first, and the report says which.
"""

from __future__ import annotations

from ampscope.report import blocks, text
from ampscope.report.charts import describe
from ampscope.report.markdown_finding import finding, finding_line
from ampscope.report.markdown_parts import Trim, exponents, facts, key_values, mermaid, sparklines, table
from ampscope.report.mdtext import code, fence, inline
from ampscope.report.mdtext import table as md_table
from ampscope.report.model import Report

LIMIT = 60_000
"""Characters; GitHub documents 65 536 for an issue body."""

STAGES = (
    Trim(),
    Trim(queries=False, left_out=("the SQL behind the evidence",)),
    Trim(queries=False, rows=8, left_out=("the SQL behind the evidence", "all but 8 rows of each table")),
    Trim(
        queries=False,
        rows=8,
        exhibits=6,
        left_out=("SQL", "rows of tables", "what the trace shows on later findings"),
    ),
    Trim(
        queries=False,
        rows=5,
        exhibits=0,
        full=12,
        words=900,
        left_out=("SQL", "rows of tables", "details of findings"),
    ),
    Trim(
        queries=False,
        rows=3,
        exhibits=0,
        full=6,
        words=500,
        most=60,
        left_out=("SQL", "most rows", "details of findings"),
    ),
    Trim(
        queries=False,
        rows=0,
        exhibits=0,
        full=3,
        words=240,
        most=25,
        left_out=("SQL", "tables", "most findings"),
    ),
)
"""From everything to the least that still names the fault, the change and the coverage."""


def render(report: Report, limit: int = LIMIT) -> str:
    """`report` as GitHub-flavoured Markdown of at most `limit` characters."""
    rendered = ""
    for trim in STAGES:
        rendered = "\n\n".join(part for part in _parts(report, trim) if part) + "\n"
        if len(rendered) <= limit:
            return rendered
    return _cut(rendered, limit)


def _cut(rendered: str, limit: int) -> str:
    """The last resort: whole sections from the end go, so that no table or fence stays open."""
    note = "\n\n*Cut here: the rest did not fit. The HTML report has it.*\n"
    sections = rendered.split("\n\n## ")
    while len(sections) > 1 and len("\n\n## ".join(sections)) + len(note) > limit:
        sections.pop()
    return "\n\n## ".join(sections)[: max(0, limit - len(note))].rstrip() + note


def _parts(report: Report, trim: Trim) -> list[str]:
    return [
        f"# {inline(blocks.title(report))}",
        f"> **{inline(trim.cut(report.verdict))}**",
        _summary(report),
        facts(report.facts),
        *_findings(report, trim),
        *_unexplained(report, trim),
        *_scale(report, trim),
        *_tables(report, trim),
        *_coverage(report, trim),
        *_environment(report, trim),
        *_integrity(report, trim),
        _footer(report, trim),
    ]


def _summary(report: Report) -> str:
    buckets = report.timeline.buckets
    steps = f"steps {buckets[0].first}–{buckets[-1].last}" if buckets else "no step recorded"
    skipped = f", {report.skipped_total} of them skipped" if buckets and report.skipped_total else ""
    exit_ = f"; {inline(report.run.exit)}" if report.run.exit else ""
    return f"**{blocks.counts(report)}**; {steps}{skipped}{exit_}."


def _findings(report: Report, trim: Trim) -> list[str]:
    if not report.findings:
        return ["## Findings", "None. What was checked is listed below."]
    parts = ["## Findings"]
    for i, found in enumerate(report.findings[: trim.full]):
        parts.append(finding(i + 1, found, trim, exhibits=i < trim.exhibits))
    later = report.findings[trim.full :]
    lines = [finding_line(trim.full + 1 + i, found, trim) for i, found in enumerate(later[: trim.most])]
    if len(later) > trim.most:
        lines.append(f"- … and {len(later) - trim.most} more")
    return [*parts, "\n".join(lines)]


def _unexplained(report: Report, trim: Trim) -> list[str]:
    parts: list[str] = []
    if report.symptoms:
        lines = [f"- {inline(trim.cut(s, 400))}" for s in report.symptoms[:12]]
        parts += ["**Seen, and explained by no finding:**", "\n".join(lines)]
    if report.crash:
        parts += [
            "**The exception that ended the run:**",
            fence(report.crash[-3000:], max_lines=max(8, 2 * trim.rows)),
        ]
    return parts


def _scale(report: Report, trim: Trim) -> list[str]:
    timeline = report.timeline
    if not timeline.buckets:
        return []
    has_scale = any(b.scale is not None for b in timeline.buckets)
    parts = ["## Loss scale, skipped steps and loss" if has_scale else "## Loss"]
    source = f" Shown: {inline(timeline.source)}." if timeline.source else ""
    parts += [describe(timeline) + source, sparklines(timeline), mermaid(timeline)]
    if report.skips:
        parts.append(_skips(report, trim))
    return parts


def _skips(report: Report, trim: Trim) -> str:
    rows = [
        [
            str(skip.step),
            text.power(skip.scale),
            text.power(skip.scale_after),
            code(skip.culprit) if skip.culprit else "not recorded",
            text.number(skip.bad_elements),
            text.number(skip.bad_tensors or None),
        ]
        for skip in report.skips[: max(trim.rows, 3)]
    ]
    header = (
        "skipped step",
        "loss scale",
        "scale after",
        "non-finite gradient nearest the loss",
        "elements",
        "tensors hit",
    )
    more = report.skipped_total - len(rows)
    tail = f"\n\n… and {text.plural(more, 'more skipped step')}." if more > 0 else ""
    return md_table(header, rows, (True, True, True, False, True, True)) + tail


def _tables(report: Report, trim: Trim) -> list[str]:
    if not report.tables or not trim.rows:
        return []
    parts: list[str] = []
    for shown in report.tables:
        parts += [f"## {inline(shown.title)}", inline(shown.note), table(shown, trim)]
        if shown is report.tables[0] and report.gradients_over_steps:
            parts.insert(2, exponents(report.gradients_over_steps))
    return parts


def _coverage(report: Report, trim: Trim) -> list[str]:
    found = report.coverage
    parts = ["## What was checked", blocks.coverage(found)]
    if found.clean:
        names = (f"{code} {found.names[code]}" if code in found.names else code for code in found.clean)
        listed = ", ".join(names) if trim.rows else ", ".join(found.clean)
        parts.append(f"**Checked and clean:** {inline(listed)}.")
    if found.silenced:
        muted = ", ".join(f"{code} ({trim.cut(reason, 100)})" for code, reason in found.silenced)
        parts.append(f"**Silenced by the user:** {inline(muted)}.")
    if found.not_measurable:
        rows = [
            [inline(f"{code} {found.names.get(code, '')}".strip()), inline(trim.cut(why, 160))]
            for code, why in found.not_measurable
        ]
        parts.append(md_table(("not measurable", "because"), rows))
    return parts


def _environment(report: Report, trim: Trim) -> list[str]:
    rows = [(name, trim.cut(content, 1500)) for name, content in blocks.environment(report.run)]
    return ["## Run and environment", key_values(rows[:40])]


def _integrity(report: Report, trim: Trim) -> list[str]:
    lines = [f"- {inline(trim.cut(line))}" for line in report.integrity[:20]] or ["- The trace is whole."]
    lines.append(f"- {inline(blocks.overhead(report.overhead))}")
    if report.overhead.collectors and trim.rows:
        costs = ", ".join(f"{name} {text.seconds(s)}" for name, s in report.overhead.collectors[:8])
        lines.append(f"- By collector: {inline(costs)}.")
    lines += [f"- {inline(trim.cut(note))}" for note in report.overhead.notes[:6]]
    lines.append(f"- {inline(blocks.privacy(report.privacy))}")
    parts = ["## Trace, overhead and privacy", "\n".join(lines)]
    if report.events is not None and trim.rows:
        parts += ["**Events of the recorder and the run**", table(report.events, trim)]
    return parts


def _footer(report: Report, trim: Trim) -> str:
    left_out = ""
    if trim.left_out:
        left_out = (
            f" Left out to fit {LIMIT} characters: {', '.join(trim.left_out)}; the HTML report has them."
        )
    return f"---\n\nWritten by {inline(report.generator)}.{left_out}"
