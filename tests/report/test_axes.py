from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ampscope.report.axes import Box, exponent_ticks, linear, path, step_axis, ticks, two_to


@given(
    st.floats(min_value=-1e6, max_value=1e6),
    st.floats(min_value=1e-2, max_value=1e9),
    st.integers(min_value=2, max_value=10),
)
def test_ticks_are_round_few_and_inside(low: float, span: float, most: int) -> None:
    found = ticks(low, low + span, most)
    assert len(found) <= most + 1
    assert all(low - span * 1e-6 <= t <= low + span * (1 + 1e-6) for t in found)


def test_ticks_of_steps_are_whole() -> None:
    assert ticks(0, 3, 8, whole=True) == [0, 1, 2, 3]
    assert ticks(0, 119, 6) == [0, 20, 40, 60, 80, 100]
    assert ticks(7, 7) == [7]


def test_exponent_ticks_are_multiples_of_a_power_of_two() -> None:
    assert exponent_ticks(-30, 17) == [-24, -16, -8, 0, 8, 16]
    assert exponent_ticks(3, 3) == [3]
    assert exponent_ticks(9, 15, 1) == [9]


def test_linear() -> None:
    to = linear(0, 10, 100, 200)
    assert (to(0), to(5), to(10)) == (100, 150, 200)
    assert linear(3, 3, 0, 10)(3) == 5


def test_pieces_of_svg() -> None:
    assert path([(0, 1.25), (2, 3)]) == "M0 1.2L2 3"
    assert "−24" in two_to(1, 2, -24)
    assert step_axis(Box(0, 0, 100, 10), linear(0, 4, 0, 100), 0, 4).count("<line") == 6
