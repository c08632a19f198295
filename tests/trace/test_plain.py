from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ampscope.trace.plain import arrow_type, encode_plain

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int16": st.integers(-(2**15), 2**15 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(),
    "bool": st.booleans(),
    "string": st.text(st.characters(codec="utf-8")),
    "dict": st.text(st.characters(codec="utf-8"), max_size=3),
}
KINDS = [*VALUES, "list<int64>", "list<float64>", "list<string>"]


def columns(kind: str) -> st.SearchStrategy[list[Any]]:
    one = st.lists(VALUES[kind[5:-1]], max_size=4) if kind.startswith("list<") else VALUES[kind]
    return st.lists(st.none() | one, max_size=20)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_what_goes_in_comes_out(kind: str, data: st.DataObject) -> None:
    values = data.draw(columns(kind))
    column = encode_plain(kind, values)
    assert column is not None
    column.validate(full=True)
    assert column.type == arrow_type(kind)
    assert _same(column.to_pylist(), values)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int16", 2**15),
        ("int64", 2**63),
        ("int64", 1.5),
        ("float64", "1.0"),
        ("float64", object()),
        ("bool", 1),
        ("dict", 3),
        ("string", "\ud800"),
        ("dict", "\udfff"),
        ("list<int64>", [1, "two"]),
        ("list<int64>", (1, 2)),
    ],
)
def test_anything_else_is_left_to_the_careful_way(kind: str, value: object) -> None:
    assert encode_plain(kind, [None, value]) is None


def _same(one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(_equal(a, b) for a, b in zip(one, other, strict=True))


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return _same(a, b)
    if isinstance(a, float) and isinstance(b, float) and math.isnan(b):
        return math.isnan(a)
    return bool(a == b) and (a is None) == (b is None)
