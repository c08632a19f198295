from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from ampscope.report.heat import LEVELS, heat_map, shade
from ampscope.report.model import HeatMap

HEAT = HeatMap(
    title="t",
    axis="exponent-columns",
    low=-27,
    high=18,
    labels=("a", "b"),
    cells=(tuple(0.5 if e == 0 else None for e in range(-27, 19)), tuple(0.0005 for _ in range(-27, 19))),
    zeros=(0.2, 0.0),
    nonfinite=(None, 0.001),
    note="n",
    total=2,
)


def test_shades_have_the_edges_of_the_legend() -> None:
    assert shade(None) is None
    assert shade(0.0) is None
    assert shade(1e-12) == 0
    assert [shade(level) for level in LEVELS] == [0, 1, 2, 3, 4, 5]
    assert shade(1.0) == 6


def test_tensors_by_exponent() -> None:
    svg = heat_map(HEAT)
    root = ElementTree.fromstring(svg)
    said = [t for t in root.itertext() if t.strip()]
    for name in ("a", "b", "subnormal", "normal", "0", "NaN, inf", "≤ 0.1 %"):
        assert name in said
    assert svg.count('class="band"') == 3
    darkest = re.search(r'd="([^"]*)" class="h6"', svg)
    assert darkest is not None
    assert darkest[1].count("M") == 1
    row_of_equal_cells = re.search(r'd="([^"]*)" class="h0"', svg)
    assert row_of_equal_cells is not None
    assert row_of_equal_cells[1].count("M") == 1


def test_exponents_by_step() -> None:
    cells = tuple(tuple(0.1 for _ in range(3)) for _ in range(HEAT.low, HEAT.high + 1))
    heat = replace(
        HEAT,
        axis="exponent-rows",
        labels=("0", "5", "10"),
        cells=cells,
        zeros=(0.1,) * 3,
        nonfinite=(0.0,) * 3,
    )
    svg = heat_map(heat)
    said = [t for t in ElementTree.fromstring(svg).itertext() if t.strip()]
    for name in ("0", "5", "10", "step", "→ inf", "→ 0", "subnormal", "NaN, inf"):
        assert name in said
    assert svg.count('class="band"') == 3


@pytest.mark.parametrize(("low", "high"), [(-5, 5), (-60, -40), (16, 30), (-27, 18)])
def test_any_range_can_be_drawn(low: int, high: int) -> None:
    cells = (tuple(0.1 for _ in range(low, high + 1)),)
    heat = replace(HEAT, low=low, high=high, labels=("a",), cells=cells, zeros=(0.0,), nonfinite=(0.0,))
    ElementTree.fromstring(heat_map(heat))
    rows = tuple((0.1,) for _ in range(low, high + 1))
    ElementTree.fromstring(heat_map(replace(heat, axis="exponent-rows", cells=rows)))


def test_a_large_map_stays_small() -> None:
    cells = tuple(tuple(0.01 * ((i * j) % 9) for j in range(96)) for i in range(46))
    heat = replace(HEAT, axis="exponent-rows", labels=tuple(map(str, range(96))), cells=cells, zeros=(0.1,) * 96,
                   nonfinite=(0.0,) * 96)  # fmt: skip
    assert len(heat_map(heat)) < 150_000
