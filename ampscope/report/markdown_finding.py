"""One finding as Markdown: place, claim, change, evidence, what the trace shows, and what would refute it."""

from __future__ import annotations

import math

from ampscope.diagnose.finding import Evidence, Finding
from ampscope.report import blocks, text
from ampscope.report.markdown_parts import Trim, table
from ampscope.report.mdtext import code, fence, inline
from ampscope.report.mdtext import table as md_table
from ampscope.report.model import Chart, Exhibit, FindingReport, Line

SPARK_POINTS = 60


def finding(number: int, found: FindingReport, trim: Trim, exhibits: bool) -> str:
    """The section of one finding."""
    item = found.finding
    parts = [
        f"### {number}. {inline(item.code)} {inline(item.name)} ({item.severity})",
        inline(trim.cut(item.claim)),
        _where(item),
        f"**Do:** {inline(trim.cut(item.recommendation))}",
        fence(item.change.diff, "diff", max_lines=40) if item.change.diff.strip() else "",
        _override(item),
        f"**Advice:** {inline(trim.cut(blocks.verification(found.verification)))}",
        _evidence(item, trim),
        *(_exhibit(found.exhibit, trim) if exhibits else ()),
        _symptoms(item, trim),
        f"**Wrong if:** {inline(trim.cut(item.falsifier))}" if item.falsifier else "",
        _queries(item) if trim.queries else "",
    ]
    return "\n\n".join(part for part in parts if part)


def finding_line(number: int, found: FindingReport, trim: Trim) -> str:
    """A finding on one line."""
    item = found.finding
    claim = inline(trim.cut(item.claim, 240))
    return f"- {number}. **{inline(item.code)} {inline(item.name)}** ({item.severity}): {claim}"


def _where(item: Finding) -> str:
    parts = [f"{name} {code(text.shorten(content, 200))}" for name, content in blocks.place(item.where)]
    if item.where.steps:
        parts.append(text.steps(item.where.steps))
    return f"**Where:** {', '.join(parts)}" if parts else ""


def _override(item: Finding) -> str:
    command = blocks.override(item)
    return f"Try it without editing the script: {code(command)}" if command else ""


def _evidence(item: Finding, trim: Trim) -> str:
    if not item.evidence:
        return ""
    kept = item.evidence[: max(4, trim.rows)]
    rows = [[inline(trim.cut(e.metric, 200)), *_measure(e, trim)] for e in kept]
    more = len(item.evidence) - len(kept)
    tail = f"\n\n… and {text.plural(more, 'more number')}." if more else ""
    return md_table(("evidence", "value", "unit", "basis"), rows, (False, True)) + tail


def _measure(evidence: Evidence, trim: Trim) -> tuple[str, str, str]:
    value = evidence.value
    shown = inline(trim.cut(value, 200)) if isinstance(value, str) else f"**{text.number(value)}**"
    return shown, inline(evidence.unit), evidence.basis


def _exhibit(exhibit: Exhibit, trim: Trim) -> list[str]:
    parts = [sparks(exhibit.chart)] if exhibit.chart else []
    for shown in exhibit.tables:
        parts += [f"**{inline(shown.title)}**", inline(shown.note), table(shown, trim)]
    return parts


def sparks(chart: Chart) -> str:
    """The lines of a chart as sparklines, with their range, and the marks in words."""
    lines = [_spark(line, chart) for line in chart.lines]
    width = max(len(name) for name, _ in lines)
    shown = [f"{name:<{width}}  {spark}" for name, spark in lines]
    unit = f" ({chart.unit})" if chart.unit else ""
    head = f"{text.clean(chart.title)}{unit}, steps {chart.steps[0]} … {chart.steps[-1]}"
    marks = ", ".join(f"{text.clean(name)} at {text.power(value)}" for value, name in _near(chart))
    return fence("\n".join([head, *shown, *([f"limits: {marks}"] if marks else [])]))


def _near(chart: Chart) -> list[tuple[float, str]]:
    """The marks that the lines come close to."""
    known = [v for line in chart.lines for v in line.values if v and math.isfinite(v)]
    reach = 2.0**12 if chart.log2 else 2.0
    return [(m, n) for m, n in chart.marks if known and min(known) / reach <= m <= max(known) * reach]


def _spark(line: Line, chart: Chart) -> tuple[str, str]:
    size = max(1, -(-len(line.values) // SPARK_POINTS))
    groups = [line.values[i : i + size] for i in range(0, len(line.values), size)]
    known = [v for v in line.values if v is not None and math.isfinite(v)]
    span = f"{text.number(min(known))} … {text.number(max(known))}" if known else "no finite value"
    values = [_worst(group, chart.log2) for group in groups]
    return f"{text.shorten(text.clean(line.name), 44)}: {span}", text.sparkline(values)


def _worst(group: tuple[float | None, ...], log2: bool) -> float | None:
    known = [v for v in group if v is not None]
    if any(not math.isfinite(v) for v in known):
        return math.nan
    if log2:
        known = [math.log2(v) for v in known if v > 0]
    return max(known) if known else None


def _symptoms(item: Finding, trim: Trim) -> str:
    if not item.symptoms:
        return ""
    return "\n".join(["**It explains:**", "", *(f"- {inline(trim.cut(s, 400))}" for s in item.symptoms[:12])])


def _queries(item: Finding) -> str:
    queries = [e.query.strip() for e in item.evidence if e.query.strip()]
    if not queries:
        return ""
    body = ";\n\n".join(dict.fromkeys(queries)) + ";"
    return f"<details><summary>SQL behind the evidence</summary>\n\n{fence(body, 'sql')}\n\n</details>"
