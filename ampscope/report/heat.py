"""Heat maps of exponents as inline SVG, with the float16 ranges marked; one path per shade."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from ampscope.report.axes import Box, exponent_ticks, h_line, label, linear, svg, two_to, v_line
from ampscope.report.charts import WIDTH
from ampscope.report.markup import Markup, tag
from ampscope.report.model import HeatMap
from ampscope.report.text import shorten

LEVELS = (0.001, 0.01, 0.03, 0.1, 0.2, 0.4)
"""Upper ends of the shades of a share, lowest first; above the last is the darkest."""

BANDS = ((16, "→ inf"), (-14, "normal"), (-25, "subnormal"))
"""(lowest exponent, name) of the ranges of float16, highest first; below the last everything becomes zero.
Bin -25 holds 2^-25 itself, which also rounds to zero (ties to even)."""

FLUSHED = "→ 0"

Cell = tuple[int, int, int]
"""Row, column, shade."""


def shade(value: float | None) -> int | None:
    """0 … 6 for a share above zero, None for zero or nothing."""
    return None if not value else bisect_left(LEVELS, value)


def heat_map(heat: HeatMap) -> Markup:
    """The picture of a heat map, in either orientation."""
    return _by_step(heat) if heat.axis == "exponent-rows" else _by_tensor(heat)


def _by_step(heat: HeatMap) -> Markup:
    count = heat.high - heat.low + 1
    row = max(5.0, min(11.0, 300.0 / count))
    box = Box(62, 40, WIDTH - 152, row * count)
    column = box.width / max(1, len(heat.labels))
    cells = [
        (r, c, s)
        for r, line in enumerate(heat.cells)
        for c, v in enumerate(line)
        if (s := shade(v)) is not None
    ]
    parts = [_title(heat), *_cells(cells, box.left, box.top, column, row)]
    parts += _strip(heat.nonfinite, "NaN, inf", box, box.top - 4 - row, column, row, "bad")
    parts += _strip(heat.zeros, "0", box, box.bottom + 4, column, row, "")
    y = linear(heat.high + 1, heat.low, box.top, box.bottom)
    for e in exponent_ticks(heat.low, heat.high):
        parts.append(two_to(box.left - 6, y(e) + 4, e))
    for low, high, name in _bands(heat):
        if high <= heat.high:
            parts.append(h_line(box, y(high), "band"))
        parts.append(label(box.right + 6, (y(low) + y(high)) / 2 + 4, name, anchor="start", class_="lbl mk"))
    base = box.bottom + row + 22
    for c in _some(len(heat.labels), 8):
        parts.append(label(box.left + (c + 0.5) * column, base, heat.labels[c]))
    parts += [label(box.right, base + 14, "step", anchor="end"), *_legend(box.left, base + 30)]
    return svg(WIDTH, base + 40, heat.title, _describe(heat), parts)


def _by_tensor(heat: HeatMap) -> Markup:
    count = heat.high - heat.low + 1
    row = 14.0
    box = Box(250, 56, WIDTH - 250 - 84, row * len(heat.labels))
    column = box.width / count
    cells = [
        (r, c, s)
        for r, line in enumerate(heat.cells)
        for c, v in enumerate(line)
        if (s := shade(v)) is not None
    ]
    parts = [_title(heat), *_cells(cells, box.left, box.top, column, row)]
    parts += [
        label(box.left - 8, box.top + (r + 0.75) * row, shorten(name, 40), anchor="end")
        for r, name in enumerate(heat.labels)
    ]
    for values, left, name, kind in (
        (heat.zeros, box.right + 8, "0", ""),
        (heat.nonfinite, box.right + 44, "NaN, inf", "bad"),
    ):
        found = [(r, 0, s) for r, v in enumerate(values) if (s := shade(v)) is not None]
        parts += [*_cells(found, left, box.top, 30, row, kind), label(left + 15, box.top - 6, name)]
        parts.append(tag("rect", x=left, y=box.top, width=30, height=box.height, class_="frame"))
    x = linear(heat.low, heat.high + 1, box.left, box.right)
    for e in exponent_ticks(heat.low, heat.high, 10):
        parts.append(two_to(x(e), box.bottom + 16, e, anchor="middle"))
    for low, high, name in _bands(heat):
        if low > heat.low:
            parts.append(v_line(box, x(low), "band"))
        if x(high) - x(low) > 36:
            parts.append(label((x(low) + x(high)) / 2, box.top - 6, name, class_="lbl mk"))
    parts += [tag("rect", x=box.left, y=box.top, width=box.width, height=box.height, class_="frame")]
    parts += _legend(box.left, box.bottom + 40)
    return svg(WIDTH, box.bottom + 50, heat.title, _describe(heat), parts)


def _title(heat: HeatMap) -> Markup:
    return label(8, 14, heat.title, anchor="start", class_="cap")


def _bands(heat: HeatMap) -> list[tuple[int, int, str]]:
    """(low, high, name) of the float16 ranges within the picture, as exponents; `high` is exclusive."""
    edges = [(heat.high + 1, ""), *BANDS, (heat.low, FLUSHED)]
    out = []
    top = heat.high + 1
    for edge, name in edges[1:]:
        low = max(heat.low, min(edge, top))
        if low < top:
            out.append((low, top, name))
        top = low
    return out


def _cells(
    cells: Iterable[Cell], left: float, top: float, width: float, height: float, kind: str = ""
) -> list[Markup]:
    """One path per shade; neighbours in a row with the same shade become one rectangle."""
    data: dict[int, list[str]] = {}
    for row, column, length, level in _merged(sorted(cells)):
        x, y, w = left + column * width, top + row * height, length * width
        data.setdefault(level, []).append(f"M{x:.1f} {y:.1f}h{w:.1f}v{height:.1f}h{-w:.1f}z")
    prefix = "b" if kind else "h"
    return [tag("path", d="".join(rects), class_=f"{prefix}{level}") for level, rects in sorted(data.items())]


def _merged(cells: Sequence[Cell]) -> list[tuple[int, int, int, int]]:
    out: list[tuple[int, int, int, int]] = []
    for row, column, level in cells:
        if out and out[-1][0] == row and out[-1][3] == level and out[-1][1] + out[-1][2] == column:
            out[-1] = (row, out[-1][1], out[-1][2] + 1, level)
        else:
            out.append((row, column, 1, level))
    return out


def _strip(
    values: Sequence[float | None], name: str, box: Box, top: float, width: float, height: float, kind: str
) -> list[Markup]:
    found = [(0, c, s) for c, v in enumerate(values) if (s := shade(v)) is not None]
    return [
        *_cells(found, box.left, top, width, height, kind),
        tag("rect", x=box.left, y=top, width=box.width, height=height, class_="frame"),
        label(box.left - 6, top + height - 1, name, anchor="end"),
    ]


def _legend(left: float, top: float) -> list[Markup]:
    parts = [label(left, top, "share of elements", anchor="start")]
    names = ("≤ 0.1 %", "≤ 1 %", "≤ 3 %", "≤ 10 %", "≤ 20 %", "≤ 40 %", "more")
    for i, name in enumerate(names):
        x = left + 104 + i * 62
        parts.append(tag("rect", x=x, y=top - 9, width=10, height=10, class_=f"h{i}"))
        parts.append(label(x + 14, top, name, anchor="start"))
    return parts


def _some(count: int, most: int) -> list[int]:
    step = max(1, -(-count // most))
    return list(range(0, count, step))


def _describe(heat: HeatMap) -> str:
    what = "steps" if heat.axis == "exponent-rows" else "tensors"
    return (
        f"Share of elements per power of two, 2^{heat.low} to 2^{heat.high}, for {len(heat.labels)} {what}, "
        f"with the limits of float16. {heat.note}".strip()
    )
