"""Heat maps: every cell in its place; absent, zero and non-finite cells are no numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from ampscope.app import palette
from ampscope.app.figures import heat

FRAME = pd.DataFrame(
    {
        "name": ["b", "a", "b", "c"],
        "bucket": [0, 0, 2, 2],
        "first": [0, 0, 20, 20],
        "last": [9, 9, 29, 29],
    }
)


def matrix(
    values: list[float], bad: list[float] | None = None, zero: list[bool] | None = None
) -> heat.Matrix:
    optional = [None if x is None else pd.Series(x) for x in (bad, zero)]
    return heat.matrix(FRAME, ["a", "b", "c"], pd.Series(values), *optional)


def test_cells_stand_in_the_order_of_the_names() -> None:
    found = matrix([0.1, 0.2, 0.3, 0.4])
    assert found.values[0].tolist()[0] == 0.2
    assert np.isnan(found.values[0, 1])
    assert found.values[1].tolist() == [0.1, 0.3]
    assert found.first.tolist() == [0, 20]
    assert found.last.tolist() == [9, 29]


def test_shares_are_coloured_by_their_cube_root() -> None:
    fig = heat.heat(matrix([0.001, 0.0, 1.0, 0.125]), "harm", "flushed")
    z = fig.data[0].z
    assert z[1].tolist() == pytest.approx([0.1, 1.0])
    assert z[0][0] == 0.0
    assert np.isnan(z[0][1])
    assert fig.data[0].customdata[1].tolist() == pytest.approx([0.1, 100.0])
    assert fig.data[0].x == ("steps 0–9", "steps 20–29")
    assert fig.data[0].y == ("a", "b", "c")
    assert "%{customdata:.3~g} %" in fig.data[0].hovertemplate


def test_magnitudes_are_logarithms_labelled_in_powers() -> None:
    fig = heat.heat(matrix([1.0, 1024.0, 2.0, 4.0]), "log2", "largest |x|")
    assert fig.data[0].z[0][0] == 10.0
    assert all(text.startswith("2") for text in fig.data[0].colorbar.ticktext)


def test_non_finite_cells_have_a_layer_of_their_own() -> None:
    fig = heat.heat(matrix([0.1, 0.2, 0.3, 0.4], bad=[0.0, 0.5, 0.0, 0.0]), "harm", "flushed")
    layer = next(t for t in fig.data if t.name == "NaN or inf")
    assert layer.colorscale[0][1] == palette.NONFINITE
    assert np.nansum(layer.z) == 1
    assert layer.z[0][0] == 1
    assert layer.customdata[0][0] == 50.0


def test_a_tensor_of_zeros_is_not_a_gap() -> None:
    fig = heat.heat(matrix([np.nan, 4.0, 2.0, 1.0], zero=[True, False, False, False]), "log2", "largest |x|")
    layer = next(t for t in fig.data if t.name == "all zero")
    assert layer.z[1][0] == 1
    assert np.nansum(layer.z) == 1


def test_the_chosen_tensor_is_framed_and_many_names_are_thinned() -> None:
    fig = heat.heat(matrix([0.1, 0.2, 0.3, 0.4]), "part", "zeros", "c")
    assert (fig.layout.shapes[0].y0, fig.layout.shapes[0].y1) == (1.5, 2.5)
    names = [f"layer.{i}" for i in range(900)]
    frame = pd.DataFrame({"name": names, "bucket": 0, "first": 0, "last": 0})
    tall = heat.heat(heat.matrix(frame, names, pd.Series(np.full(900, 0.5))), "part", "zeros")
    assert tall.layout.height <= 760
    assert len(tall.layout.yaxis.tickvals) <= 60


def test_headroom_is_red_where_it_ends() -> None:
    fig = heat.heat(matrix([-1.0, 0.0, 8.0, 16.0]), "binades", "headroom")
    assert fig.data[0].zmin == -1.0
    assert fig.data[0].colorscale[0][1] == palette.VERMILLION


def test_names_cannot_carry_markup() -> None:
    frame = FRAME.assign(name=["<b>b</b>", "a", "<b>b</b>", "c"])
    fig = heat.heat(heat.matrix(frame, ["a", "<b>b</b>", "c"], pd.Series([0.1, 0.2, 0.3, 0.4])), "harm", "x")
    assert fig.data[0].y[1] == "&lt;b&gt;b&lt;/b&gt;"
    assert fig.layout.yaxis.ticktext[1] == "&lt;b&gt;b&lt;/b&gt;"
