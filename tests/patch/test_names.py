from __future__ import annotations

import libcst as cst
import pytest

from ampscope.patch.names import binds, is_reference, last_name, parameters, reads, root_name, targets


@pytest.mark.parametrize(
    ("code", "read", "bound"),
    [
        ("a = b + c.d", "bc", "a"),
        ("a, (b, *c) = d", "d", "abc"),
        ("a.b = c[d]", "acd", ""),
        ("a[i] = b", "aib", ""),
        ("a += b", "ab", "a"),
        ("a: int = b", "b", "a"),
        ("f(x=a, *b)", "fab", ""),
        ("if (a := b): pass", "b", "a"),
        ("for a in b: c(a)", "abc", "a"),
        ("with a as b: c", "ac", "b"),
        ("import a.b, c as d", "", "ad"),
        ("from a import b as c, d", "", "cd"),
        ("def a(b=c): return b + e", "ce", "a"),
        ("class a(b): c = d", "bd", "a"),
        ("x = [a for a in b if a]", "b", "x"),
        ("x = {a: b for a in c}", "bc", "x"),
        ("x = lambda a: a + b", "b", "x"),
    ],
)
def test_what_is_read_and_bound(code: str, read: str, bound: str) -> None:
    module = cst.parse_module(code)
    assert reads(module) == set(read)
    assert binds(module) == set(bound)


def test_parameters() -> None:
    function = cst.parse_module("def f(a, /, b=1, *c, d, **e): x = 1").body[0]
    assert isinstance(function, cst.FunctionDef)
    assert parameters(function) == set("abcde")


@pytest.mark.parametrize(
    ("code", "root"),
    [("a", "a"), ("a.b.c", "a"), ("a.b[0]['k'].c", "a"), ("a[i]", None), ("f(x)", None), ("a + b", None)],
)
def test_references(code: str, root: str | None) -> None:
    node = cst.parse_expression(code)
    assert is_reference(node) == (root is not None)
    if root is not None:
        assert root_name(node) == root


def test_the_name_of_a_function() -> None:
    assert [last_name(cst.parse_expression(c)) for c in ("f", "a.b.f", "a[0]")] == ["f", "f", ""]


def test_targets_of_assignments() -> None:
    def of(code: str) -> list[str]:
        line = cst.parse_statement(code)
        assert isinstance(line, cst.SimpleStatementLine)
        return [cst.Module([]).code_for_node(t) for t in targets(line.body[0])]

    assert of("a = b.c = d") == ["a", "b.c"]
    assert of("a: int = 1") == ["a"]
    assert of("a: int") == []
    assert of("f(a)") == []
