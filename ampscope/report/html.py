"""The report as one HTML file that needs nothing else: no script, no network, no picture, light and dark."""

from __future__ import annotations

from typing import NamedTuple

from ampscope.report import blocks, charts, heat, text
from ampscope.report.html_parts import (
    bullets,
    code,
    diff,
    key_values,
    more,
    rows,
    sentence,
    table,
)
from ampscope.report.markup import Markup, join, preformatted, tag
from ampscope.report.model import Exhibit, FindingReport, HeatMap, Report
from ampscope.report.style import style_sheet

LIMIT = 1_000_000
"""Bytes. Beyond it findings lose their charts and tables, then all but a line; the last ones first."""


class Room(NamedTuple):
    """How many findings get charts and tables, are told in full, and are named at all beyond these."""

    exhibits: int
    full: int
    named: int


ROOMS = (Room(60, 200, 1000), Room(20, 100, 500), Room(0, 40, 300), Room(0, 3, 100))

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def render(report: Report, limit: int = LIMIT) -> str:
    """`report` as a page of less than `limit` bytes."""
    for room in ROOMS:
        page = _page(report, room)
        if len(page.encode()) < limit:
            break
    return page


def _page(report: Report, room: Room) -> str:
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}"/>'),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", blocks.title(report)),
        tag("style", style_sheet()),
    )
    body = tag("body", tag("main", *_sections(report, room)))
    return f'<!DOCTYPE html>\n<html lang="en">{head}\n{body}\n</html>\n'


def _sections(report: Report, room: Room) -> list[Markup | None]:
    return [
        _header(report),
        _findings(report, room),
        _unexplained(report),
        _scale(report),
        _gradients(report),
        _tables(report),
        _coverage(report),
        _environment(report),
        tag("footer", tag("p", sentence(f"Written by {report.generator}."))),
    ]


def _header(report: Report) -> Markup:
    severities = [f.finding.severity for f in report.findings]
    tone = next((s for s in ("critical", "warning", "info") if s in severities), "ok")
    links = (
        ("findings", "Findings"),
        ("scale", "Loss scale"),
        ("gradients", "Gradients"),
        ("tables", "Tables"),
        ("coverage", "Coverage"),
        ("environment", "Environment"),
    )
    buckets = report.timeline.buckets
    span = f"steps {buckets[0].first}–{buckets[-1].last}" if buckets else "no step recorded"
    skipped = f", {report.skipped_total} skipped" if report.skipped_total else ""
    tail = f"; {report.run.exit}" if report.run.exit else ""
    cards = [
        tag("div", tag("dt", name), tag("dd", value), tag("dd", sentence(detail)) if detail else None)
        for name, value, detail in map(blocks.fact, report.facts)
    ]
    return join(
        tag("h1", blocks.title(report)),
        tag("p", sentence(report.verdict), class_=f"verdict tone-{tone}"),
        tag("p", sentence(f"{blocks.counts(report)}; {span}{skipped}{tail}."), class_="sub"),
        tag("dl", *cards, class_="facts") if cards else None,
        tag("nav", *(tag("a", name, href=f"#{anchor}") for anchor, name in links), aria_label="Sections"),
    )


def _findings(report: Report, room: Room) -> Markup:
    items = [_finding(i, found, i < room.exhibits) for i, found in enumerate(report.findings[: room.full])]
    nothing = tag("p", "None. What was checked is listed under Coverage.") if not items else None
    later = [f.finding for f in report.findings[room.full :]]
    lines = [text.shorten(f"{f.code} {f.name} ({f.severity}): {f.claim}", 400) for f in later[: room.named]]
    if len(later) > len(lines):
        lines.append(f"… and {len(later) - len(lines)} more")
    return join(tag("h2", "Findings", id="findings"), nothing, *items, bullets(lines) if lines else None)


def _finding(index: int, found: FindingReport, exhibit: bool) -> Markup:
    item = found.finding
    places = [join(tag("b", name), " ", code(content), "  ") for name, content in blocks.place(item.where)]
    override = blocks.override(item)
    queries = ";\n\n".join(dict.fromkeys(e.query.strip() for e in item.evidence if e.query.strip()))
    return tag(
        "article",
        tag("h3", tag("span", item.severity, class_="badge"), f"{item.code} {item.name}"),
        tag("p", sentence(item.claim)),
        tag("p", *places, text.steps(item.where.steps), class_="sub") if places or item.where.steps else None,
        tag("p", tag("b", "Do: "), sentence(item.recommendation)),
        diff(item.change.diff) if item.change.diff.strip() else None,
        tag("p", "Try it without editing the script: ", code(override)) if override else None,
        tag("p", tag("b", "Advice: "), sentence(blocks.verification(found.verification)), class_="sub"),
        _evidence(found),
        _exhibit(found.exhibit) if exhibit else None,
        join(tag("h4", "It explains"), bullets(item.symptoms[:30])) if item.symptoms else None,
        tag("p", tag("b", "Wrong if: "), sentence(item.falsifier)) if item.falsifier else None,
        more("SQL behind the evidence", preformatted(text.clean_block(queries, 200))) if queries else None,
        class_=f"finding tone-{item.severity}",
        id=f"finding-{index + 1}",
    )


def _unexplained(report: Report) -> Markup | None:
    if not report.symptoms and not report.crash:
        return None
    crash = preformatted(text.clean_block(report.crash[-6000:], 80)) if report.crash else None
    return join(
        tag("h3", "Seen, and explained by no finding") if report.symptoms else None,
        bullets(report.symptoms[:30]) if report.symptoms else None,
        tag("h3", "The exception that ended the run") if crash else None,
        crash,
    )


def _evidence(found: FindingReport) -> Markup | None:
    if not found.finding.evidence:
        return None
    content = [
        [
            sentence(text.shorten(e.metric, 300)),
            sentence(text.shorten(e.value, 300))
            if isinstance(e.value, str)
            else tag("b", text.number(e.value)),
            sentence(e.unit),
            e.basis,
        ]
        for e in found.finding.evidence[:60]
    ]
    return rows("Evidence", ("measured", "value", "unit", "basis"), content, right=(1,))


def _exhibit(exhibit: Exhibit) -> Markup:
    return join(
        tag("figure", charts.lines(exhibit.chart)) if exhibit.chart else None,
        _heat(exhibit.heat),
        *(table(shown) for shown in exhibit.tables),
    )


def _heat(shown: HeatMap | None) -> Markup | None:
    if shown is None or not shown.labels:
        return None
    left = shown.total - len(shown.labels)
    rest = f" {left} more tensors are not shown." if shown.axis == "exponent-columns" and left > 0 else ""
    caption = tag("figcaption", sentence(shown.note + rest)) if shown.note or rest else None
    return tag("figure", heat.heat_map(shown), caption)


def _scale(report: Report) -> Markup:
    title = tag("h2", "Loss scale, skipped steps and loss", id="scale")
    if not report.timeline.buckets:
        return join(title, tag("p", "No step was recorded."))
    caption = sentence(f"{charts.describe(report.timeline)} {report.timeline.source}".strip())
    figure = tag("figure", charts.timeline(report.timeline), tag("figcaption", caption))
    return join(title, figure, _skips(report))


def _skips(report: Report) -> Markup | None:
    if not report.skips:
        return None
    content = [
        [
            str(skip.step),
            text.power(skip.scale),
            text.power(skip.scale_after),
            code(skip.culprit) if skip.culprit else "not recorded",
            text.number(skip.bad_elements),
            text.number(skip.bad_tensors or None),
        ]
        for skip in report.skips
    ]
    header = (
        "step",
        "loss scale",
        "scale after",
        "non-finite gradient nearest the loss",
        "elements",
        "tensors hit",
    )
    more_ = report.skipped_total - len(content)
    tail = tag("p", f"… and {text.plural(more_, 'more skipped step')}.", class_="sub") if more_ > 0 else None
    return join(rows("Skipped steps", header, content, right=(0, 1, 2, 4, 5)), tail)


def _gradients(report: Report) -> Markup:
    maps = [_heat(report.gradients_over_steps), _heat(report.gradients_by_tensor)]
    nothing = None if any(maps) else tag("p", "No gradient was recorded at the range level.")
    return join(tag("h2", "Gradients against the range of float16", id="gradients"), *maps, nothing)


def _tables(report: Report) -> Markup:
    return join(tag("h2", "Tables", id="tables"), *(table(shown) for shown in report.tables))


def _coverage(report: Report) -> Markup:
    found = report.coverage
    clean = ", ".join(f"{c} {found.names.get(c, '')}".strip() for c in found.clean)
    reasons = [
        [f"{c} {found.names.get(c, '')}".strip(), sentence(text.shorten(why, 400))]
        for c, why in found.not_measurable
    ]
    silenced = [
        [f"{c} {found.names.get(c, '')}".strip(), sentence(text.shorten(why, 400))]
        for c, why in found.silenced
    ]
    return join(
        tag("h2", "What was checked", id="coverage"),
        tag("p", blocks.coverage(found)),
        tag("p", tag("b", "Checked and clean: "), clean, ".") if clean else None,
        rows("Not measurable", ("diagnosis", "because"), reasons) if reasons else None,
        rows("Silenced by the user", ("diagnosis", "reason"), silenced) if silenced else None,
    )


def _environment(report: Report) -> Markup:
    cost = report.overhead
    collectors = [[code(name), text.seconds(s)] for name, s in cost.collectors[:12]]
    notes = [*(report.integrity or ("The trace is whole.",)), blocks.overhead(cost), *cost.notes]
    return join(
        tag("h2", "Run and environment", id="environment"),
        key_values(blocks.environment(report.run)),
        tag("h2", "Trace, overhead and privacy"),
        bullets([*notes, blocks.privacy(report.privacy)]),
        rows("Own time by collector", ("collector", "host time"), collectors, right=(1,))
        if collectors
        else None,
        table(report.events) if report.events is not None else None,
    )
