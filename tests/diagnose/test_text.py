from __future__ import annotations

import pytest

from ampscope.diagnose.text import count, listed, percent, pow2, sci, steps_phrase


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3e-8, "3e-08"), (0.0, "0"), (65536, "65536"), (1.5e7, "1.5e+07"), (0.0123, "0.0123"), (None, "unknown"),
        (float("nan"), "nan"), (float("inf"), "inf"), (-2.0, "-2"), (2.0**-24, "5.96e-08"),
    ],
)  # fmt: skip
def test_numbers_are_scientific_to_the_end(value: float | None, text: str) -> None:
    assert sci(value) == text


@pytest.mark.parametrize(
    ("share", "text"), [(0.314, "31 %"), (0.025, "2.5 %"), (3e-7, "3e-05 %"), (0.0, "0 %")]
)
def test_small_shares_are_not_zero(share: float, text: str) -> None:
    assert percent(share) == text


@pytest.mark.parametrize(
    ("scale", "text"), [(65536.0, "2^16"), (2.0**-5, "2^-5"), (1.0, "1"), (1000.0, "1000"), (0.0, "0")]
)
def test_scales_as_powers_of_two(scale: float, text: str) -> None:
    assert pow2(scale) == text


def test_words() -> None:
    assert count(1, "step") == "1 step"
    assert count(2, "more finding follows", "more findings follow") == "2 more findings follow"
    assert listed(["a"]) == "a"
    assert listed(["a", "b"]) == "a and b"
    assert listed(list("abcde")) == "a, b, c and 2 more"
    assert steps_phrase(3, 3) == "step 3"
    assert steps_phrase(3, 9) == "steps 3 to 9"
