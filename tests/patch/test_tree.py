from __future__ import annotations

from pathlib import Path

import libcst as cst
import pytest

from ampscope.patch.refused import Refused
from ampscope.patch.sources import SourceFile
from ampscope.patch.tree import Tree, identifiers

SOURCE = b"""\
from torch.amp import GradScaler as GS
import torch.nn.functional as F

limit = 1.0

def train(model, opt):
    global seen
    scaler = GS()
    for x in data:
        if x: a(x); b(
            x,
        ).backward()
        for y in x:
            step(y)
    seen = 1

class Net:
    def forward(self, x):
        return F.relu(x)
"""


@pytest.fixture
def tree() -> Tree:
    return Tree(SourceFile(Path("/x/train.py"), "train.py", SOURCE, "/x/train.py"))


def call(tree: Tree, name: str) -> cst.Call:
    return tree.calls(None, name)[0]


def test_calls_are_found_by_line_and_name(tree: Tree) -> None:
    assert [tree.code(c.func) for c in tree.calls(10)] == ["a", "b(\n    x,\n).backward", "b"]
    assert tree.calls(12, "backward") == tree.calls(10, "backward")
    assert tree.calls(14, "step", "other") == tree.calls(None, "step")
    assert tree.calls(99) == []


def test_names_are_resolved_through_imports(tree: Tree) -> None:
    assert tree.names_of(call(tree, "GS").func) == {"torch.amp.GradScaler"}
    assert tree.names_of(call(tree, "relu").func) == {"torch.nn.functional.relu"}
    assert tree.names_of(tree.module) == frozenset()


def test_surroundings(tree: Tree) -> None:
    step = tree.statement(call(tree, "step"))
    inner, outer = tree.loop(step), tree.loop(step, outermost=True)
    assert (tree.line(inner or tree.module), tree.line(outer or tree.module)) == (13, 9)
    function = tree.function(step)
    assert isinstance(function, cst.FunctionDef)
    assert tree.function(function) is tree.module
    assert tree.class_of(call(tree, "relu")) is not None
    assert tree.class_of(step) is None
    assert tree.loop(tree.statement(call(tree, "GS"))) is None


def test_blocks_and_siblings(tree: Tree) -> None:
    a, b = (tree.statement(call(tree, name)) for name in ("a", "backward"))
    assert tree.siblings(a) == [a, b]
    assert tree.following(a) == [b]
    made = tree.statement(call(tree, "GS"))
    loop = tree.in_block_of(b, made)
    assert isinstance(loop, cst.For)
    assert tree.in_block_of(call(tree, "relu"), made) is None
    assert [type(s).__name__ for s in tree.siblings(made)] == ["Global", "Assign", "For", "Assign"]


def test_statements(tree: Tree) -> None:
    assert tree.code(tree.plain_statement(14)) == "step(y)"
    assert tree.plain_statement(11) is tree.statement(call(tree, "backward"))
    with pytest.raises(Refused, match=r"train\.py:13 is no plain statement"):
        tree.plain_statement(13)
    function = tree.function(call(tree, "step"))
    assert len(tree.plain_statements(function)) == 6


def test_the_expressions_of_a_statement_are_its_own(tree: Tree) -> None:
    loop = tree.loop(call(tree, "step"))
    assert loop is not None
    assert [tree.code(e) for e in tree.expressions(loop)] == ["y", "x"]


def test_names_of_scopes(tree: Tree) -> None:
    train = tree.function(call(tree, "step"))
    assert tree.local_names(train) == {"model", "opt", "scaler", "x", "y"}
    assert tree.local_names(tree.module) == tree.global_names
    assert {"GS", "F", "limit", "train", "Net", "seen"} == tree.global_names
    assert "relu" in identifiers(tree)


def test_places(tree: Tree) -> None:
    assert tree.place(call(tree, "step")) == "train.py:14"


@pytest.mark.parametrize("data", [b"x = (\n", b"x = '\xff'\n"])
def test_what_cannot_be_parsed_is_refused(data: bytes) -> None:
    with pytest.raises(Refused, match=r"train\.py cannot be parsed"):
        Tree(SourceFile(Path("/x/train.py"), "train.py", data, "/x/train.py"))
