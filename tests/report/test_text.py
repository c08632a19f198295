from __future__ import annotations

import math
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ampscope.report.text import (
    clean,
    clean_block,
    number,
    power,
    seconds,
    share,
    shorten,
    size,
    sparkline,
    steps,
)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (3e-8, "3e-8"),
        (-3e-8, "-3e-8"),
        (0.0, "0"),
        (65536.0, "65536"),
        (65536, "65536"),
        (1 / 3, "0.3333"),
        (123456.7, "123457"),
        (999999.96, "1000000"),
        (1.5e9, "1.5e9"),
        (5e-324, "4.941e-324"),
        (math.nan, "NaN"),
        (-math.inf, "-inf"),
        (None, "–"),
        (True, "yes"),
        ("a\nb", "a b"),
    ],
)
def test_number(value: float | int | str | bool | None, shown: str) -> None:
    assert number(value) == shown


@given(st.floats(allow_nan=False, allow_infinity=False).filter(lambda x: x != 0))
def test_a_number_that_is_not_zero_never_reads_zero(value: float) -> None:
    back = float(number(value))
    assert back != 0
    assert math.isclose(back, value, rel_tol=1e-3) or not math.isfinite(back)


@given(st.floats(min_value=0, max_value=1))
def test_a_share_never_rounds_to_nothing_or_everything(value: float) -> None:
    shown = share(value)
    assert (shown == "0 %") == (value == 0)
    assert (shown == "100 %") == (value == 1)


def test_units() -> None:
    assert seconds(3e-9) == "3e-9 s"
    assert seconds(0.0123) == "12.3 ms"
    assert seconds(7200) == "2 h"
    assert seconds(None) == "–"
    assert size(1536) == "1.5 KiB"
    assert size(2.0**45) == "32 TiB"
    assert power(65536.0) == "65536 (2^16)"
    assert power(2.0**-30) == "9.313e-10 (2^-30)"
    assert power(1000.0) == "1000"
    assert power(0.0) == "0"
    assert steps((3, 3)) == "step 3"
    assert steps((3, 9)) == "steps 3–9"


@given(st.text())
def test_clean_leaves_one_line_that_hides_nothing(text: str) -> None:
    shown = clean(text)
    assert "\n" not in shown
    assert not any(unicodedata.category(c) in ("Cc", "Cf", "Cs") for c in shown)
    shown.encode("utf-8")
    assert clean(shown) == shown


def test_clean_strips_terminal_escapes_and_marks_what_reorders_text() -> None:
    assert clean("\x1b[31mred\x1b[0m\tx") == "red x"
    assert clean("a\u202eb\udc80") == "a\ufffdb\ufffd"


def test_clean_block_keeps_lines_and_cuts_long_texts() -> None:
    shown = clean_block("a\tb\r\n" + "x" * 900 + "\n" * 100, max_lines=3)
    lines = shown.split("\n")
    assert lines[0] == "a    b"
    assert len(lines[1]) == 400
    assert lines[-1] == "… 99 more lines"


@given(st.text(max_size=60), st.integers(min_value=2, max_value=40))
def test_shorten_keeps_both_ends(text: str, limit: int) -> None:
    shown = shorten(text, limit)
    assert len(shown) <= limit
    if len(text) > limit:
        assert text.startswith(shown.split("…")[0])
    else:
        assert shown == text


def test_sparkline() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == "▁▂▃▄▅▆▇█"
    assert sparkline([1, None, math.nan, math.inf, 1]) == "▄ ××▄"
    assert sparkline([math.nan]) == ""
