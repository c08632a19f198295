from __future__ import annotations

import pytest

from ampscope.trace.table import Column, columns


def test_a_line_is_a_column_and_an_indented_line_goes_on() -> None:
    text = """
step int64 the step
hist list<int64> [elements] one count
    per binade
"""
    assert list(columns(text)) == [
        Column("step", "int64", "", "the step"),
        Column("hist", "list<int64>", "elements", "one count per binade"),
    ]


def test_a_line_without_a_meaning_is_refused() -> None:
    with pytest.raises(ValueError, match="not a column: step int64"):
        list(columns("step int64"))
