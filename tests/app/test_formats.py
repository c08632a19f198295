"""The browser's table of formats is that of numerics."""

from __future__ import annotations

import math

import pytest

from ampscope.app import formats
from ampscope.numerics.formats import FORMATS


@pytest.mark.parametrize("mine", formats.FORMATS, ids=lambda f: f.name)
def test_edges_are_those_of_numerics(mine: formats.BrowserFormat) -> None:
    theirs = FORMATS[mine.name]
    assert theirs.flush_threshold == math.ldexp(1.0, mine.flush_log2)
    assert theirs.min_normal == math.ldexp(1.0, mine.min_normal_log2)
    assert theirs.largest == mine.largest
    assert theirs.overflow_threshold == mine.overflow
    assert theirs.overflow == mine.becomes


def test_every_format_of_values_is_there() -> None:
    """Left out: float32 and tf32, whose range a histogram of float32 cannot leave, and e8m0, which holds scales."""
    assert {f.name for f in FORMATS.values()} - {f.name for f in formats.FORMATS} == {"fp32", "tf32", "e8m0"}


def test_names_are_offered_once() -> None:
    names = [value for value, _ in formats.options()]
    assert len(set(names)) == len(names) == len(formats.as_json())
