"""`.float()` on an expression, and which parts of a statement an aten op comes from. Pure functions over nodes."""

from __future__ import annotations

import libcst as cst

from ampscope.patch.names import is_reference, last_name
from ampscope.patch.tree import Statement, Tree

_SPELLED: dict[str, tuple[str, ...]] = {
    "_log_softmax": ("log_softmax", "cross_entropy"),
    "_softmax": ("softmax", "scaled_dot_product_attention"),
    "linalg_vector_norm": ("norm", "vector_norm", "normalize"),
    "nll_loss_forward": ("nll_loss", "cross_entropy"),
    "nll_loss2d_forward": ("nll_loss", "cross_entropy"),
    "pow": ("pow", "square"),
    "var_mean": ("var_mean", "var", "layer_norm"),
    "std_mean": ("std_mean", "std"),
    "native_layer_norm": ("layer_norm",),
    "native_group_norm": ("group_norm",),
    "mm": ("matmul", "mm", "linear", "einsum"),
    "bmm": ("matmul", "bmm", "einsum", "baddbmm"),
    "addmm": ("linear", "addmm"),
    "baddbmm": ("baddbmm", "linear"),
    "convolution": ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d"),
}
"""How the user writes an aten op that has another name in Python, besides its own."""

_OPERATORS: dict[str, tuple[type[cst.BaseBinaryOp], ...]] = {
    "add": (cst.Add,),
    "sub": (cst.Subtract,),
    "rsub": (cst.Subtract,),
    "mul": (cst.Multiply,),
    "div": (cst.Divide,),
    "pow": (cst.Power,),
    "mm": (cst.MatrixMultiply,),
    "bmm": (cst.MatrixMultiply,),
    "addmm": (cst.MatrixMultiply,),
}

MATRIX = frozenset(
    {"mm", "bmm", "addmm", "baddbmm", "matmul", "linear", "convolution", "lstm", "mkldnn_rnn_layer", "gru"}
)
"""Ops that autocast runs in half whatever their inputs are."""

REDUCING = frozenset(
    {"sum", "mean", "nansum", "norm", "linalg_vector_norm", "var", "std", "var_mean", "prod", "logsumexp"}
    | {
        "nll_loss_forward",
        "nll_loss2d_forward",
        "mse_loss",
        "l1_loss",
        "binary_cross_entropy",
        "_log_softmax",
    }
)
"""Ops whose float32 result is as a rule used as a loss or a statistic, not as the input of a half layer."""


def plain_op(op: str | None) -> str:
    """`sum` for `aten::sum` and `aten::sum_`."""
    name = (op or "").rpartition("::")[2]
    return name.rstrip("_") or name


def spelled(op: str) -> tuple[str, ...]:
    """The names of functions and methods by which a user calls an aten op."""
    return (op, f"{op}_", *_SPELLED.get(op, ()))


def operator_of(op: str) -> tuple[type[cst.BaseBinaryOp], ...]:
    """The Python operators that call an aten op."""
    return _OPERATORS.get(op, ())


def calls_of(tree: Tree, statement: Statement, op: str) -> list[cst.Call]:
    """The calls in a statement that can be this op."""
    return [
        n for n in tree.expressions(statement) if isinstance(n, cst.Call) and last_name(n.func) in spelled(op)
    ]


def operations_of(tree: Tree, statement: Statement, op: str) -> list[cst.BinaryOperation]:
    """The binary operations in a statement that can be this op."""
    kinds = operator_of(op)
    return [
        n
        for n in tree.expressions(statement)
        if isinstance(n, cst.BinaryOperation) and isinstance(n.operator, kinds)
    ]


def operand(tree: Tree, call: cst.Call) -> cst.BaseExpression | None:
    """The tensor that a call works on: the receiver of a method, or the first argument of a function."""
    function = call.func
    if isinstance(function, cst.Attribute) and not _is_module(tree, function.value):
        return function.value
    first = call.args[0] if call.args else None
    return first.value if first is not None and not first.star else None


def strict_inputs(call: cst.Call) -> list[cst.BaseExpression]:
    """Further arguments whose dtype must be that of the tensor: the source of a scatter or an index_add."""
    last = call.args[-1] if call.args else None
    wanted = last_name(call.func).rstrip("_") in ("index_add", "scatter_add", "scatter_reduce", "index_copy")
    return [last.value] if wanted and last is not None and len(call.args) > 2 and not last.star else []


def _is_module(tree: Tree, node: cst.BaseExpression) -> bool:
    """Whether an expression names a module of torch (`torch.linalg`, `F`), so that what follows is a function."""
    names = tree.names_of(node)
    return any(
        n == "torch" or n.startswith(("torch.nn.functional", "torch.linalg", "torch.special")) for n in names
    )


def is_float(node: cst.BaseExpression) -> bool:
    """Whether an expression ends in a cast to float32 already."""
    return isinstance(node, cst.Call) and last_name(node.func) in ("float", "double")


def as_float(node: cst.CSTNode) -> cst.BaseExpression:
    """`node.float()`, in parentheses where the node needs them."""
    assert isinstance(node, cst.BaseExpression)
    simple = is_reference(node) or isinstance(node, cst.Call | cst.Subscript | cst.Attribute)
    if not simple and not node.lpar:
        node = node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    return cst.Call(cst.Attribute(node, cst.Name("float")))


def is_number(tree: Tree, node: cst.BaseExpression) -> bool:
    """Whether an expression is a Python number as far as the file tells: a literal, a name that is only ever
    assigned literals, a parameter whose default is one, an attribute that is called an eps."""
    if isinstance(node, cst.Integer | cst.Float):
        return True
    if isinstance(node, cst.UnaryOperation):
        return is_number(tree, node.expression)
    if isinstance(node, cst.BinaryOperation):
        return is_number(tree, node.left) and is_number(tree, node.right)
    if isinstance(node, cst.Attribute):
        return "eps" in node.attr.value.lower()
    return isinstance(node, cst.Name) and _named_number(tree, node)


def _named_number(tree: Tree, name: cst.Name) -> bool:
    values = [
        a.value
        for a in tree.nodes(cst.Assign)
        for t in a.targets
        if isinstance(t.target, cst.Name) and t.target.value == name.value
    ]
    defaults = [
        p.default for p in tree.nodes(cst.Param) if p.name.value == name.value and p.default is not None
    ]
    known = [*values, *defaults]
    return bool(known) and all(isinstance(v, cst.Integer | cst.Float) for v in known)


def deep_leaf(tree: Tree, node: cst.BaseExpression) -> cst.BaseExpression | None:
    """`tensor_leaf`, looked for through calls of methods as well: `x` of `(x * x).mean(-1) + eps`."""
    leaf = tensor_leaf(tree, node)
    if isinstance(leaf, cst.Call) and isinstance(leaf.func, cst.Attribute):
        receiver = leaf.func.value
        if isinstance(receiver, cst.BinaryOperation | cst.Call) or is_reference(receiver):
            return leaf if _is_module(tree, receiver) else deep_leaf(tree, receiver)
    return leaf


def tensor_leaf(tree: Tree, node: cst.BaseExpression) -> cst.BaseExpression | None:
    """The first part of an arithmetic expression that is no number: with it in float32 the whole is."""
    if isinstance(node, cst.BinaryOperation):
        return tensor_leaf(tree, node.left) or tensor_leaf(tree, node.right)
    if isinstance(node, cst.UnaryOperation):
        return tensor_leaf(tree, node.expression)
    return None if is_number(tree, node) else node
