from __future__ import annotations

import libcst as cst
import pytest

from ampscope.patch.arguments import (
    AUTOCAST,
    argument,
    has_star,
    setting,
    with_argument,
    with_first,
    with_keywords,
)


def call(code: str) -> cst.Call:
    node = cst.parse_expression(code)
    assert isinstance(node, cst.Call)
    return node


def text(node: cst.CSTNode) -> str:
    return cst.Module([]).code_for_node(node)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f()", "f(enabled=False)"),
        ("f(a)", "f(a, enabled=False)"),
        ("f(a, b)", "f(a, b, enabled=False)"),
        ("f(a, b, True)", "f(a, b, False)"),
        ("f(enabled=x, y=1)", "f(enabled=False, y=1)"),
        ("f(a,)", "f(a, enabled=False,)"),
        ("f(\n    a,\n)", "f(\n    a,\n    enabled=False,\n)"),
        ("f(\n    a\n)", "f(\n    a,\n    enabled=False\n)"),
        ("f(\n    a,\n    b=1\n)", "f(\n    a,\n    b=1,\n    enabled=False\n)"),
    ],
)
def test_an_argument_is_set_in_its_place_or_added_in_the_same_layout(before: str, after: str) -> None:
    assert text(with_argument(call(before), "enabled", "False", AUTOCAST)) == after
    assert text(setting("enabled", "False", AUTOCAST)(call(before))) == after


def test_an_argument_is_found_by_keyword_or_place() -> None:
    found = argument(call("f(a, dtype=b)"), "dtype", AUTOCAST)
    assert found is not None
    assert text(found.value) == "b"
    assert argument(call("f(a)"), "device_type", AUTOCAST) is not None
    assert argument(call("f(*a)"), "device_type", AUTOCAST) is None
    assert has_star(call("f(*a)"))
    assert has_star(call("f(**a)"))
    assert not has_star(call("f(a, b=1)"))


def test_one_more_in_front() -> None:
    assert text(with_first(call("f()"), '"cpu"')) == 'f("cpu")'
    assert text(with_first(call("f(a, b=1)"), '"cpu"')) == 'f("cpu", a, b=1)'


def test_places_become_keywords() -> None:
    assert text(with_keywords(call("f(a, b, c=1)"), AUTOCAST)) == "f(device_type=a, dtype=b, c=1)"
