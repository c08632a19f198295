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
    assert (theirs.overflow == "saturate") == mine.saturates


def test_names_are_offered_once() -> None:
    names = [value for value, _ in formats.options()]
    assert len(set(names)) == len(names) == len(formats.as_json())
