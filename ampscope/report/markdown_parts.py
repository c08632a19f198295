"""Pieces of the Markdown report: facts, tables, sparklines, the Mermaid chart, and how far they are cut."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ampscope.report import blocks, text
from ampscope.report.mdtext import code, fence, inline
from ampscope.report.mdtext import table as md_table
from ampscope.report.model import Bucket, Fact, HeatMap, Kind, Table, Timeline, Value

SPARK_WIDTH = 72
MERMAID_POINTS = 60


@dataclass(frozen=True)
class Trim:
    """How much of a report is kept: `exhibits` findings with charts and tables, `full` with their numbers,
    `most` more on a line each; `words` limits each text, in characters, and `rows` each table."""

    queries: bool = True
    rows: int = 12
    exhibits: int = 1000
    full: int = 40
    most: int = 200
    words: int = 3000
    left_out: tuple[str, ...] = ()

    def cut(self, content: str, limit: int | None = None) -> str:
        """`content` within the limit."""
        return text.shorten(content, min(self.words, limit or self.words))


def facts(items: Sequence[Fact]) -> str:
    """The summary numbers as a table."""
    if not items:
        return ""
    rows = [[inline(name), f"**{shown}**", inline(detail)] for name, shown, detail in map(blocks.fact, items)]
    return md_table(("number", "value", "how it is known"), rows)


def table(shown: Table, trim: Trim) -> str:
    """A table of the model, with the number of rows that were left out."""
    rows = [
        [_cell(column.kind, v, trim) for column, v in zip(shown.columns, row, strict=True)]
        for row in shown.rows
    ]
    kept = rows[: trim.rows]
    header = [inline(column.name) for column in shown.columns]
    right = [blocks.is_number(column.kind) for column in shown.columns]
    more = shown.total - len(kept)
    tail = f"\n\n… and {text.plural(more, 'more row')}." if more > 0 else ""
    return md_table(header, kept, right) + tail


def _cell(kind: Kind, content: Value, trim: Trim) -> str:
    if isinstance(content, str):
        short = trim.cut(content, 300)
        return inline(short) if kind == "text" else code(short)
    return blocks.value(kind, content)


def key_values(rows: Sequence[tuple[str, str]]) -> str:
    """Lines of `name: content`."""
    return "\n".join(f"- **{inline(name)}:** {code(content)}" for name, content in rows)


def sparklines(timeline: Timeline) -> str:
    """Scale, skips and loss as three lines of characters on the same steps."""
    if len(timeline.buckets) < 2:
        return ""
    groups = grouped(timeline.buckets, SPARK_WIDTH)
    scales = [_log2(group[-1].scale) for group in groups]
    losses = [_loss(group) for group in groups]
    lines = []
    known = [s for b in timeline.buckets for s in map(_log2, (b.scale_low, b.scale_high)) if s is not None]
    if known and (min(known) < max(known) or any(b.skipped for b in timeline.buckets)):
        lines.append((f"scale 2^{min(known):.4g} … 2^{max(known):.4g}", text.sparkline(scales)))
        hits = ["▲" if any(b.skipped for b in group) else "·" for group in groups]
        lines.append(("skipped ▲", "".join(hits)))
    finite = [b.loss for b in timeline.buckets if b.loss is not None]
    if finite:
        lines.append(
            (f"loss {text.number(min(finite))} … {text.number(max(finite))}", text.sparkline(losses))
        )
    elif losses:
        lines.append(("loss (× NaN or inf)", text.sparkline([*losses, 0.0])[:-1]))
    width = max((len(name) for name, _ in lines), default=0)
    return fence("\n".join(f"{name:<{width}}  {line}" for name, line in lines)) if lines else ""


def mermaid(timeline: Timeline) -> str:
    """The loss scale as a Mermaid chart, which GitHub draws; nothing when it never moves."""
    groups = grouped(timeline.buckets, MERMAID_POINTS)
    values: list[float] = []
    for group in groups:
        value = _log2(group[-1].scale)
        if value is not None:
            values.append(value)
        elif values:
            values.append(values[-1])
    if len(set(values)) < 2:
        return ""
    low, high = math.floor(min(values)) - 1, math.ceil(max(values)) + 1
    first, last = timeline.buckets[0].first, timeline.buckets[-1].last
    points = ", ".join(f"{v:.6g}" for v in values)
    lines = (
        "xychart-beta",
        '    title "log2 of the loss scale"',
        f'    x-axis "step" {first} --> {last}',
        f'    y-axis "log2(scale)" {low} --> {high}',
        f"    line [{points}]",
    )
    return fence("\n".join(lines), "mermaid")


def exponents(heat: HeatMap) -> str:
    """The elements of all steps per power of two as one line of characters, with the float16 limits below it."""
    totals = [sum(v or 0.0 for v in row) for row in reversed(heat.cells)]
    if not any(totals):
        return "No sampled gradient element was finite and other than zero."
    edges = [(heat.low, "zero"), (-25, "subnormal"), (-14, "normal float16"), (16, "inf")]
    line, ruler, names = "", "", ""
    spark = text.sparkline([math.log10(max(v, 1e-6)) if v else None for v in totals])
    for i, (edge, name) in enumerate(edges):
        start = max(heat.low, edge)
        end = min(heat.high + 1, edges[i + 1][0] if i + 1 < len(edges) else heat.high + 1)
        if start >= end:
            continue
        width = max(end - start, len(name) + 1, len(f"2^{start}") + 1)
        line += f"│{spark[start - heat.low : end - heat.low]:<{width}}"
        names += f"│{name:<{width}}"
        ruler += f"{f'2^{start}':<{width + 1}}"
    head = "gradient elements per power of two (log scale of their share), all sampled steps"
    return fence("\n".join(part.rstrip() for part in (head, line, names, ruler)))


def grouped(buckets: Sequence[Bucket], most: int) -> list[Sequence[Bucket]]:
    """Neighbouring buckets together, at most `most` groups."""
    size = max(1, -(-len(buckets) // most))
    return [buckets[i : i + size] for i in range(0, len(buckets), size)]


def _loss(group: Sequence[Bucket]) -> float | None:
    if any(b.bad_loss for b in group):
        return math.nan
    known = [b.loss for b in group if b.loss is not None]
    return sum(known) / len(known) if known else None


def _log2(value: float | None) -> float | None:
    return math.log2(value) if value is not None and value > 0 and math.isfinite(value) else None
