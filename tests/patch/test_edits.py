from __future__ import annotations

from pathlib import Path

import pytest

from ampscope.patch.edits import Edits
from ampscope.patch.refused import Refused
from ampscope.patch.sources import SourceFile
from ampscope.patch.tree import Tree

SOURCE = b"a()\nb()\nc()\n"


@pytest.fixture
def tree() -> Tree:
    return Tree(SourceFile(Path("/x/t.py"), "t.py", SOURCE, "/x/t.py"))


def test_nothing_is_no_edit(tree: Tree) -> None:
    edits = Edits(tree)
    assert not edits
    assert edits.code() == SOURCE.decode()


def test_two_sets_are_merged(tree: Tree) -> None:
    a, b, c = tree.siblings(tree.plain_statement(1))
    one, two = Edits(tree), Edits(tree)
    one.insert_before(b, "x()")
    two.insert_after(b, "y()")
    two.insert_before(b, "x()")
    two.replace(tree.calls(3)[0], "d()")
    two.remove(a)
    one.merge(two)
    assert one.code() == "x()\nb()\ny()\nd()\n"
    assert c not in one.removed


def test_one_place_is_changed_by_one_set_only(tree: Tree) -> None:
    b = tree.plain_statement(2)
    remove, insert, replace, wrap = Edits(tree), Edits(tree), Edits(tree), Edits(tree)
    remove.remove(b)
    insert.insert_before(b, "x()")
    replace.replace(tree.calls(2)[0], "y()")
    wrap.wrap([b], "if q:")
    for one, two in ((remove, insert), (insert, remove), (replace, replace), (wrap, wrap), (remove, remove)):
        first = Edits(tree)
        first.merge(one)
        with pytest.raises(Refused, match=r"t\.py:2 is changed by another fix"):
            first.merge(two)


def test_the_same_replacement_of_a_statement_is_one_wish(tree: Tree) -> None:
    b = tree.plain_statement(2)
    one, two = Edits(tree), Edits(tree)
    for edits in (one, two):
        edits.replace_statement(b, "x()")
    one.merge(two)
    assert one.code() == "a()\nx()\nc()\n"


def test_an_expression_is_replaced_once(tree: Tree) -> None:
    edits = Edits(tree)
    edits.replace(tree.calls(1)[0], "x()")
    with pytest.raises(Refused, match="is edited already"):
        edits.replace(tree.calls(1)[0], "y()")


def test_of_insertions_with_one_key_the_first_or_the_last_is_made(tree: Tree) -> None:
    a, b, c = tree.siblings(tree.plain_statement(1))
    edits = Edits(tree)
    for statement in (c, a):
        other = Edits(tree)
        other.insert_before(statement, "first()", key="f")
        other.insert_after(statement, "last()", key="l", keep="last")
        edits.merge(other)
    assert edits.code() == "first()\na()\nb()\nc()\nlast()\n"
    assert b not in edits.before
