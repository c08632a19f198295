"""Scales, ticks and labels of the inline SVG charts. Draws nothing by itself and knows nothing of a trace."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ampscope.report.markup import Markup, join, tag
from ampscope.report.text import number

FONT = 11
"""Font size of labels in user units."""


@dataclass(frozen=True)
class Box:
    """The plotting area in user units of the SVG."""

    left: float
    top: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.left + self.width

    @property
    def bottom(self) -> float:
        return self.top + self.height


def linear(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    """A map of low … high onto start … end; a single value sits in the middle."""
    if high == low:
        return lambda _: (start + end) / 2
    return lambda value: start + (value - low) / (high - low) * (end - start)


def ticks(low: float, high: float, most: int = 6, whole: bool = False) -> list[float]:
    """Round numbers from low to high, at most `most`; only integers with `whole`."""
    span = high - low
    if span <= 0 or not math.isfinite(span):
        return [low]
    step = _nice(span / most)
    if whole:
        step = max(1.0, step)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def _nice(raw: float) -> float:
    base = 10.0 ** math.floor(math.log10(raw))
    return next(m * base for m in (1.0, 2.0, 5.0, 10.0) if m * base >= raw * 0.999)


def exponent_ticks(low: int, high: int, most: int = 7) -> list[int]:
    """Exponents from low to high in steps of 1, 2, 4, 8, 16 …"""
    step = 1
    while (high - low) / step > most:
        step *= 2
    return [e for e in range(low, high + 1) if e % step == 0] or [low]


def label(x: float, y: float, *content: str, anchor: str = "middle", class_: str = "lbl") -> Markup:
    """A text at (x, y)."""
    return tag("text", *content, x=float(x), y=float(y), text_anchor=anchor, class_=class_)


def two_to(x: float, y: float, exponent: int, anchor: str = "end") -> Markup:
    """The text 2 to the power `exponent`, with a raised exponent."""
    raised = tag("tspan", str(exponent).replace("-", "−"), dy=-4, font_size=8)
    return label(x, y, "2", raised, anchor=anchor)


def h_line(box: Box, y: float, class_: str = "grid") -> Markup:
    """A horizontal line over the box."""
    return tag("line", x1=box.left, x2=box.right, y1=float(y), y2=float(y), class_=class_)


def v_line(box: Box, x: float, class_: str = "grid") -> Markup:
    """A vertical line over the box."""
    return tag("line", x1=float(x), x2=float(x), y1=box.top, y2=box.bottom, class_=class_)


def step_axis(box: Box, x: Callable[[float], float], first: int, last: int, title: str = "step") -> Markup:
    """Tick marks and numbers below the box."""
    marks = [
        join(
            tag("line", x1=x(t), x2=x(t), y1=box.bottom, y2=box.bottom + 4, class_="axis"),
            label(x(t), box.bottom + 15, number(int(t))),
        )
        for t in ticks(first, last, 8, whole=True)
    ]
    return join(
        h_line(box, box.bottom, "axis"), *marks, label(box.right, box.bottom + 28, title, anchor="end")
    )


def svg(width: float, height: float, title: str, description: str, parts: Sequence[Markup]) -> Markup:
    """A picture with a name and a description for who does not see it; it scales with the page."""
    return tag(
        "svg",
        tag("title", title),
        tag("desc", description),
        *parts,
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        aria_label=f"{title}. {description}",
    )


def path(points: Sequence[tuple[float, float]]) -> str:
    """Path data through the points."""
    return "".join(f"{'L' if i else 'M'}{_short(x)} {_short(y)}" for i, (x, y) in enumerate(points))


def _short(value: float) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".")
