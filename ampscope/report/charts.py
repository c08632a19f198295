"""Line charts as inline SVG: the loss scale with skipped steps over the loss, and lines over steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from ampscope.report.axes import (
    Box,
    exponent_ticks,
    h_line,
    label,
    linear,
    path,
    step_axis,
    svg,
    ticks,
    two_to,
)
from ampscope.report.markup import Markup, tag
from ampscope.report.model import Bucket, Chart, Line, Timeline
from ampscope.report.text import number, plural, power, shorten

WIDTH = 860
SERIES = 6
"""Lines that one chart tells apart: so many colours with so many dash patterns."""


def timeline(line: Timeline) -> Markup:
    """Loss scale (log2) with a mark for every skip, and the loss below it on the same steps."""
    buckets = line.buckets
    has_scale = any(b.scale is not None for b in buckets)
    top = 26.0
    scale_box = Box(62, top, WIDTH - 76, 130)
    loss_box = Box(62, scale_box.bottom + 38 if has_scale else top, WIDTH - 76, 120)
    first, last = buckets[0].first, buckets[-1].last
    x = linear(first, last, loss_box.left + 4, loss_box.right - 4)
    parts = [*(_scale_panel(scale_box, x, buckets) if has_scale else ()), *_loss_panel(loss_box, x, buckets)]
    parts.append(step_axis(loss_box, x, first, last))
    title = "Loss scale, skipped steps and loss" if has_scale else "Loss"
    return svg(WIDTH, loss_box.bottom + 34, title, describe(line), parts)


def describe(line: Timeline) -> str:
    """The line in one sentence, for who cannot see it."""
    buckets = line.buckets
    if not buckets:
        return "No step was recorded."
    scales = [b.scale for b in buckets if b.scale is not None]
    losses = [b.loss for b in buckets if b.loss is not None]
    skipped, bad = sum(b.skipped for b in buckets), sum(b.bad_loss for b in buckets)
    said = [f"Steps {buckets[0].first} to {buckets[-1].last}"]
    if scales:
        lows = [b.scale_low for b in buckets if b.scale_low is not None]
        highs = [b.scale_high for b in buckets if b.scale_high is not None]
        low, high = min(lows, default=scales[0]), max(highs, default=scales[0])
        if low == high:
            said.append(f"loss scale {power(low)} throughout")
        else:
            within = f" (lowest {power(low)}, highest {power(high)})"
            said.append(f"loss scale from {power(scales[0])} to {power(scales[-1])}{within}")
        said.append(f"{plural(skipped, 'step')} skipped" if skipped else "no step skipped")
    if losses:
        said.append(f"loss from {number(losses[0])} to {number(losses[-1])}")
    if bad:
        said.append(f"{plural(bad, 'loss value')} not finite")
    return ", ".join(said) + "."


def _scale_panel(box: Box, x: Callable[[float], float], buckets: Sequence[Bucket]) -> list[Markup]:
    lows = [_log2(b.scale_low) for b in buckets]
    highs = [_log2(b.scale_high) for b in buckets]
    known = [v for v in (*lows, *highs) if v is not None]
    low, high = math.floor(min(known, default=0.0)) - 1, math.ceil(max(known, default=0.0)) + 1
    y = linear(low, high, box.bottom, box.top)
    parts = [
        label(box.left, box.top - 8, "loss scale", anchor="start", class_="cap"),
        h_line(box, box.bottom, "axis"),
    ]
    for e in exponent_ticks(low, high, 5):
        parts += [h_line(box, y(e)), two_to(box.left - 6, y(e) + 4, e)]
    points: list[tuple[float, float]] = []
    for bucket, lowest, highest in zip(buckets, lows, highs, strict=True):
        value = _log2(bucket.scale)
        if value is None or lowest is None or highest is None:
            continue
        if highest - lowest > 0.01:
            points += [(x(bucket.first), y(highest)), (x(bucket.first), y(lowest))]
        elif points:
            points.append((x(bucket.first), points[-1][1]))
        points += [(x(bucket.first), y(value)), (x(bucket.last), y(value))]
    parts.append(tag("path", d=path(points), class_="line s0"))
    parts += _skip_marks(box, x, buckets)
    return parts


def _skip_marks(box: Box, x: Callable[[float], float], buckets: Sequence[Bucket]) -> list[Markup]:
    hit = [b for b in buckets if b.skipped]
    if not hit:
        return [label(box.right, box.top - 8, "no step was skipped", anchor="end")]
    marks = "".join(_triangle(x((b.first + b.last) / 2), box.bottom) for b in hit)
    total = sum(b.skipped for b in buckets)
    text = f"▲ {plural(total, 'skipped step')}"
    return [
        tag("path", d=marks, class_="skip"),
        label(box.right, box.top - 8, text, anchor="end", class_="lbl bad"),
    ]


def _triangle(x: float, base: float) -> str:
    return f"M{x - 3.5:.1f} {base:.1f}h7l-3.5 -8z"


def _loss_panel(box: Box, x: Callable[[float], float], buckets: Sequence[Bucket]) -> list[Markup]:
    values = [b.loss for b in buckets if b.loss is not None]
    parts = [label(box.left, box.top - 8, "loss", anchor="start", class_="cap")]
    if not values:
        parts.append(label(box.left + box.width / 2, box.top + box.height / 2, "no finite loss was recorded"))
    low, high = min(values, default=0.0), max(values, default=1.0)
    y = linear(low, high, box.bottom - 6, box.top + 6)
    for t in ticks(low, high, 4) if values else ():
        parts += [h_line(box, y(t)), label(box.left - 6, y(t) + 4, number(t), anchor="end")]
    middle = [(x((b.first + b.last) / 2), None if b.loss is None else y(b.loss)) for b in buckets]
    parts.append(tag("path", d="".join(path(run) for run in runs(middle)), class_="line s1 whole"))
    bad = [b for b in buckets if b.bad_loss]
    if bad:
        parts.append(
            tag("path", d="".join(cross(x((b.first + b.last) / 2), box.top + 2) for b in bad), class_="nan")
        )
        count = sum(b.bad_loss for b in bad)
        text = f"× {plural(count, 'loss value')} NaN or inf"
        parts.append(label(box.right, box.top - 8, text, anchor="end", class_="lbl bad"))
    return parts


def lines(chart: Chart) -> Markup:
    """Up to SERIES lines over steps, with horizontal marks; what is not finite is a cross at the top edge."""
    shown = chart.lines[:SERIES]
    legend_rows = math.ceil(len(shown) / 2) if len(shown) > 1 else 0
    box = Box(62, 28 + 15 * legend_rows, WIDTH - 76, 180)
    first, last = chart.steps[0], chart.steps[-1]
    x = linear(first, last, box.left + 4, box.right - 4)
    low, high, convert = _range(chart, shown)
    y = linear(low, high, box.bottom - 4, box.top + 10)
    unit = f" ({chart.unit})" if chart.unit else ""
    parts = [label(box.left, 14, chart.title + unit, anchor="start", class_="cap"), *_legend(shown, box)]
    parts += _value_axis(box, y, low, high, chart.log2)
    for value, name in chart.marks:
        at = convert(value)
        if at is not None and low <= at <= high:
            parts.append(h_line(box, y(at), "mark"))
            parts.append(label(box.right - 2, y(at) - 3, name, anchor="end", class_="lbl mk"))
    for i, line in enumerate(shown):
        parts += _series(line, i, chart.steps, x, y, convert, box)
    parts.append(step_axis(box, x, first, last))
    return svg(WIDTH, box.bottom + 34, chart.title, _summary(chart, shown), parts)


def _range(
    chart: Chart, shown: Sequence[Line]
) -> tuple[float, float, Callable[[float | None], float | None]]:
    convert = _log2 if chart.log2 else _finite
    if chart.bounds:
        return *chart.bounds, convert
    known = [v for line in shown for v in map(convert, line.values) if v is not None]
    marked = [v for v in (convert(m) for m, _ in chart.marks) if v is not None]
    low, high = min(known, default=0.0), max(known, default=1.0)
    reach = max((high - low) * 1.5, 8.0 if chart.log2 else 0.0)
    near = [m for m in marked if low - reach <= m <= high + reach]
    low, high = min([low, *near]), max([high, *near])
    if chart.log2:
        return math.floor(low) - 1, math.ceil(high) + 1, convert
    return (low - 1, high + 1, convert) if low == high else (low, high, convert)


def _value_axis(box: Box, y: Callable[[float], float], low: float, high: float, log2: bool) -> list[Markup]:
    parts: list[Markup] = []
    if log2:
        for e in exponent_ticks(int(low), int(high)):
            parts += [h_line(box, y(e)), two_to(box.left - 6, y(e) + 4, e)]
        return parts
    for t in ticks(low, high, 5):
        parts += [h_line(box, y(t)), label(box.left - 6, y(t) + 4, number(float(f"{t:.12g}")), anchor="end")]
    return parts


def _series(
    line: Line,
    index: int,
    steps: Sequence[int],
    x: Callable[[float], float],
    y: Callable[[float], float],
    convert: Callable[[float | None], float | None],
    box: Box,
) -> list[Markup]:
    at = [(s, convert(v)) for s, v in zip(steps, line.values, strict=True)]
    points = [(x(s), None if v is None else y(v)) for s, v in at]
    parts = [tag("path", d="".join(path(run) for run in runs(points)), class_=f"line s{index}")]
    alone = [run[0] for run in runs(points) if len(run) == 1]
    parts += [tag("circle", cx=px, cy=py, r=2.5, class_=f"dot s{index}") for px, py in alone]
    bad = [s for s, v in zip(steps, line.values, strict=True) if v is not None and not math.isfinite(v)]
    if bad:
        parts.append(tag("path", d="".join(cross(x(s), box.top + 3) for s in bad), class_="nan"))
    return parts


def _legend(shown: Sequence[Line], box: Box) -> list[Markup]:
    if len(shown) < 2:
        return []
    parts: list[Markup] = []
    for i, line in enumerate(shown):
        left, top = box.left + (i % 2) * box.width / 2, 30 + 15 * (i // 2)
        parts.append(tag("line", x1=left, x2=left + 24, y1=top - 4, y2=top - 4, class_=f"line s{i}"))
        parts.append(label(left + 30, top, shorten(line.name, 52), anchor="start"))
    return parts


def _summary(chart: Chart, shown: Sequence[Line]) -> str:
    said = []
    for line in shown:
        known = [v for v in line.values if v is not None]
        finite = [v for v in known if math.isfinite(v)]
        bad = len(known) - len(finite)
        span = f"{number(min(finite))} to {number(max(finite))}" if finite else "no finite value"
        said.append(f"{line.name}: {span}" + (f", {bad} not finite" if bad else ""))
    return f"Steps {chart.steps[0]} to {chart.steps[-1]}; " + "; ".join(said) + "."


def runs(points: Iterable[tuple[float, float | None]]) -> list[list[tuple[float, float]]]:
    """The stretches of neighbouring points that have a value."""
    out: list[list[tuple[float, float]]] = [[]]
    for x, y in points:
        if y is not None:
            out[-1].append((x, y))
        elif out[-1]:
            out.append([])
    return [run for run in out if run]


def cross(x: float, y: float) -> str:
    """Path data of a small cross."""
    return f"M{x - 3:.1f} {y - 3:.1f}l6 6m0 -6l-6 6"


def _log2(value: float | None) -> float | None:
    return math.log2(value) if value is not None and value > 0 and math.isfinite(value) else None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
