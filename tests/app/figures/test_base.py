"""Axes in powers of two, and text that cannot carry markup."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ampscope.app.figures import base


@given(st.floats(-300, 300), st.floats(0, 300))
def test_ticks_are_whole_exponents_inside_and_few(low: float, width: float) -> None:
    positions, labels = base.power_ticks(low, low + width)
    assert len(positions) <= 10
    assert len(labels) == len(positions)
    assert all(math.floor(low) <= p <= math.ceil(low + width) for p in positions)


def test_labels_are_powers_of_two() -> None:
    assert base.two_to(-14) == "2⁻¹⁴"
    assert base.power_ticks(10, 16) == ([10, 11, 12, 13, 14, 15, 16], [base.two_to(e) for e in range(10, 17)])


def test_log2_of_what_has_none_is_nan() -> None:
    out = base.log2([1.0, 1024.0, 0.0, -1.0, math.inf, math.nan])
    assert out[:2].tolist() == [0.0, 10.0]
    assert np.isnan(out[2:]).all()


def test_an_axis_without_finite_values_is_still_an_axis() -> None:
    assert base.power_axis(math.nan, math.nan)["tickvals"] == [0]


@given(st.text(max_size=80))
def test_labels_hold_no_markup(text: str) -> None:
    for shown in (base.plain(text), base.label(text)):
        assert "<" not in shown
        assert ">" not in shown


def test_long_names_lose_their_middle() -> None:
    shown = base.label("blocks.0.attention.projection.weight" * 3, 34)
    assert len(shown) == 34
    assert shown.startswith("blocks.0")
    assert shown.endswith("weight")


def test_columns_are_labelled_by_their_last_step() -> None:
    axis = base.column_axis(np.array([0, 1, 3, 7, 15]))
    assert axis["tickvals"] == [0, 1, 2, 3, 4]
    assert axis["ticktext"] == ["0", "1", "3", "7", "15"]
    assert len(base.column_axis(np.arange(200))["tickvals"]) <= 12  # type: ignore[arg-type]


def test_categories_are_text_and_never_alike() -> None:
    assert base.categories(["<b>", "a\u200b", "a\ufffd", "a"]) == ["&lt;b&gt;", "a\ufffd", "a\ufffd (2)", "a"]


def test_powers_of_two_are_raised() -> None:
    assert base.power(65536.0) == "65536 (2¹⁶)"
    assert base.power(2.0**-13) == "1.221e-4 (2⁻¹³)"
    assert base.power(1000.0) == "1000"
    assert base.power(None) == "–"
