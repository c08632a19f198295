"""Colours that survive colour blindness: the Okabe-Ito set for categories, viridis-like ramps for amounts.

Every colour here is readable on the light and on the dark surface; what differs between the two themes
(text, grid lines, surfaces) is in `assets/base.css` and `assets/plots.css`.
"""

from __future__ import annotations

BLUE = "#0f7fc4"
SKY = "#56b4e9"
GREEN = "#009e73"
ORANGE = "#e69f00"
VERMILLION = "#d55e00"
PURPLE = "#cc79a7"
GREY = "#8a93a3"

CATEGORIES = (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILLION, GREY)
"""In the order in which series take them."""

SEVERITY = {"critical": VERMILLION, "warning": ORANGE, "info": BLUE, "ok": GREEN}

DTYPES = {
    "float32": BLUE,
    "float64": PURPLE,
    "float16": ORANGE,
    "bfloat16": GREEN,
    "float8": VERMILLION,
    "other": GREY,
}

PHASES = {
    "data": SKY,
    "forward": BLUE,
    "backward": ORANGE,
    "unscale": PURPLE,
    "optimizer": GREEN,
    "rest": "#a9b2bf",
}

BANDS = {"overflow": VERMILLION, "normal": BLUE, "subnormal": ORANGE, "flushed": PURPLE}
"""Regions of a number format, from its largest value down."""

NONFINITE = "#d6009a"
"""Cells that hold NaN or inf: outside every ramp."""

NOTHING = "rgba(96,125,160,0.16)"
"""Cells in which every element is zero."""

DENSITY = (
    (0.0, "rgba(68,90,160,0.30)"),
    (0.15, "#414487"),
    (0.4, "#2a788e"),
    (0.65, "#22a884"),
    (0.85, "#7ad151"),
    (1.0, "#fde725"),
)
"""Where the elements of a histogram are: nothing is close to the surface in both themes."""

HARM = (
    (0.0, "rgba(96,125,160,0.13)"),
    (0.03, "rgba(86,160,210,0.55)"),
    (0.3, "#3f8fc9"),
    (0.5, "#e6b84a"),
    (0.75, "#e0701b"),
    (1.0, "#a8280a"),
)
"""A share that should be small, from nothing (almost the surface itself, in both themes) to all of it."""

PART = ((0.0, "rgba(96,125,160,0.13)"), (0.03, "rgba(65,68,135,0.75)"), *DENSITY[2:])
"""A share that may be large without harm."""

RANGE = (
    (0.0, "#440154"),
    (0.2, "#414487"),
    (0.4, "#2a788e"),
    (0.6, "#22a884"),
    (0.8, "#7ad151"),
    (1.0, "#fde725"),
)
"""Viridis: magnitudes, where the low end is a value and not an absence."""


def dtype_color(name: str) -> str:
    """Colour of a dtype; the float8 variants share one."""
    return DTYPES.get(name, DTYPES["float8"] if name.startswith("float8") else DTYPES["other"])
