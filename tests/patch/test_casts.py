from __future__ import annotations

from pathlib import Path

import libcst as cst
import pytest

from ampscope.patch.casts import (
    as_float,
    calls_of,
    deep_leaf,
    is_float,
    is_number,
    operand,
    operations_of,
    plain_op,
    strict_inputs,
    tensor_leaf,
)
from ampscope.patch.sources import SourceFile
from ampscope.patch.tree import Tree


def tree_of(code: str) -> Tree:
    head = "import torch\nimport torch.nn.functional as F\nEPS = 1e-8\ndef f(x, tiny=1e-6, y=None): pass\n"
    return Tree(SourceFile(Path("/x/t.py"), "t.py", f"{head}{code}\n".encode(), "/x/t.py"))


def value_of(tree: Tree) -> cst.BaseExpression:
    statement = tree.plain_statements()[-1]
    assert isinstance(statement, cst.Assign | cst.Expr)
    return statement.value


def text(node: cst.CSTNode | None) -> str:
    return "" if node is None else cst.Module([]).code_for_node(node)


@pytest.mark.parametrize(
    ("code", "after"),
    [("a", "a.float()"),
     ("f(a)", "f(a).float()"), ("a + b", "(a + b).float()"), ("(a + b)", "(a + b).float()"), ("-a", "(-a).float()")],
)  # fmt: skip
def test_as_float(code: str, after: str) -> None:
    assert text(as_float(cst.parse_expression(code))) == after
    assert is_float(cst.parse_expression(after))


def test_names_of_ops() -> None:
    assert [plain_op(op) for op in ("aten::sum", "aten::add_", None)] == ["sum", "add", ""]


def test_calls_and_operations_of_an_op() -> None:
    tree = tree_of("y = a.sum() + torch.sum(b) + mean(c) ** 2")
    statement = tree.plain_statements()[-1]
    assert [text(c) for c in calls_of(tree, statement, "sum")] == ["a.sum()", "torch.sum(b)"]
    assert [text(c) for c in operations_of(tree, statement, "pow")] == ["mean(c) ** 2"]
    assert len(operations_of(tree, statement, "add")) == 2


@pytest.mark.parametrize(
    ("code", "found"),
    [("a.sum(0)", "a"),
     ("torch.sum(a, 0)", "a"), ("F.softmax(a)", "a"), ("torch.linalg.norm(a)", "a"), ("sum(*a)", "")],
)  # fmt: skip
def test_the_operand_of_a_call(code: str, found: str) -> None:
    tree = tree_of(code)
    call = value_of(tree)
    assert isinstance(call, cst.Call)
    assert text(operand(tree, call)) == found


def test_inputs_whose_dtype_must_agree() -> None:
    def of(code: str) -> list[str]:
        call = cst.parse_expression(code)
        assert isinstance(call, cst.Call)
        return [text(n) for n in strict_inputs(call)]

    assert of("z.index_add_(0, i, s)") == ["s"]
    assert of("z.sum(0)") == []


@pytest.mark.parametrize("code", ["1", "-1e-8", "EPS", "tiny", "self.eps", "2 * EPS", "float_info.epsilon"])
def test_numbers(code: str) -> None:
    tree = tree_of(code)
    assert is_number(tree, value_of(tree))


@pytest.mark.parametrize("code", ["x", "y", "f(1)", "a + 1", "self.scale"])
def test_what_may_be_a_tensor(code: str) -> None:
    tree = tree_of(code)
    assert not is_number(tree, value_of(tree))


@pytest.mark.parametrize(
    ("code", "leaf", "deep"),
    [
        ("1 - p + EPS", "p", "p"),
        ("EPS * 2", "", ""),
        ("-(a * b)", "a", "a"),
        ("(x * x).mean(-1) + EPS", "(x * x).mean(-1)", "x"),
        ("torch.mean(x) + EPS", "torch.mean(x)", "torch.mean(x)"),
    ],
)
def test_the_leaf_that_takes_the_rest_along(code: str, leaf: str, deep: str) -> None:
    tree = tree_of(code)
    assert text(tensor_leaf(tree, value_of(tree))) == leaf
    assert text(deep_leaf(tree, value_of(tree))) == deep
