from __future__ import annotations

import itertools
import re

import pytest

from ampscope.report.style import style_sheet


def palette(dark: bool) -> dict[str, str]:
    css = style_sheet()
    blocks = re.findall(r":root\{([^}]*)\}", css)
    return dict(re.findall(r"--([\w]+):(#[0-9a-f]{3,6})", blocks[1 if dark else 0]))


def luminance(color: str) -> float:
    """Relative luminance of WCAG 2.2."""
    digits = color[1:] if len(color) == 7 else "".join(2 * c for c in color[1:])
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return float(0.2126 * r + 0.7152 * g + 0.0722 * b)


def contrast(a: str, b: str) -> float:
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_text_and_lines_can_be_read(dark: bool) -> None:
    colors = palette(dark)
    for name in ("fg", "soft", "critical", "warning", "info", "ok", "bad"):
        for ground in ("bg", "card"):
            assert contrast(colors[name], colors[ground]) >= 4.5, (name, ground)
    assert contrast(colors["fg"], colors["code"]) >= 4.5
    for i in range(6):
        assert contrast(colors[f"s{i}"], colors["bg"]) >= 3, f"s{i}"


@pytest.mark.parametrize("dark", [False, True])
def test_shades_step_away_from_the_ground(dark: bool) -> None:
    colors = palette(dark)
    steps = [contrast(colors[f"h{i}"], colors["bg"]) for i in range(7)]
    assert steps == sorted(steps)
    assert steps[0] > 1.1
    assert all(b / a > 1.15 for a, b in itertools.pairwise(steps))


def test_paper_is_light_and_nothing_comes_from_elsewhere() -> None:
    css = style_sheet()
    assert "@media screen and (prefers-color-scheme:dark)" in css
    assert "@media print" in css
    assert "url(" not in css
    assert "@import" not in css
    assert "/*" not in css
