"""Constants that half precision cannot hold, losses on probabilities, and sums that are kept in half."""

from __future__ import annotations

import libcst as cst

from ampscope.patch.casts import as_float, is_number
from ampscope.patch.editor import editor
from ampscope.patch.names import is_reference, last_name
from ampscope.patch.project import Case
from ampscope.patch.refused import Refused
from ampscope.patch.tree import Statement, Tree

HALF_MAX = 65504.0
"""Largest finite float16 (IEEE 754 binary16)."""

_FILLS = {"masked_fill": 1, "masked_fill_": 1, "where": 2, "full_like": 1}
"""Calls that put a constant into a tensor, with the position of the constant."""


@editor("AMP406")
def finite_mask(case: Case) -> None:
    """A mask constant beyond the half range, or −inf, becomes `torch.finfo(x.dtype).min`."""
    tree = case.tree
    statement = tree.plain_statement(case.line)
    found = [c for c in _fills(tree, statement) if _out_of_range(tree, c[1])] or _all_fills(case, tree)
    for like, constant in found:
        case.edits(tree).replace(constant, f"torch.finfo({tree.code(like)}.dtype).min")
    if not found:
        raise Refused(f"no mask constant beyond the half range stands at {tree.place(statement)}")
    if "torch" not in tree.global_names:
        case.edits(tree).need_import("torch")


def _all_fills(case: Case, tree: Tree) -> list[tuple[cst.BaseExpression, cst.BaseExpression]]:
    """The fills of the function round the line: the softmax that fails stands after the mask."""
    scope = tree.function(tree.plain_statement(case.line))
    statements = tree.plain_statements(scope)
    return [c for s in statements for c in _fills(tree, s) if _out_of_range(tree, c[1])]


def _fills(tree: Tree, statement: Statement) -> list[tuple[cst.BaseExpression, cst.BaseExpression]]:
    """(tensor that is filled, constant) of every fill in a statement."""
    found: list[tuple[cst.BaseExpression, cst.BaseExpression]] = []
    for call in tree.expressions(statement):
        if not isinstance(call, cst.Call) or last_name(call.func) not in _FILLS:
            continue
        values = [a.value for a in call.args if a.keyword is None or a.keyword.value == "value"]
        place = _FILLS[last_name(call.func)]
        if len(values) <= place or not isinstance(call.func, cst.Attribute):
            continue
        is_where = last_name(call.func) == "where"
        like = (
            values[1] if is_where else values[0] if "torch" in tree.code(call.func.value) else call.func.value
        )
        found.append((like, values[place]))
    return [(like, constant) for like, constant in found if is_reference(like)]


def _out_of_range(tree: Tree, constant: cst.BaseExpression) -> bool:
    code = tree.code(constant)
    if "finfo" in code:
        return False
    if "inf" in code:
        return code.lstrip("-(").startswith(("float", "torch.inf", "math.inf", "np.inf", "numpy.inf", "inf"))
    return is_number(tree, constant) and abs(_value(code)) > HALF_MAX


def _value(code: str) -> float:
    try:
        return float(code.replace(" ", ""))
    except ValueError:
        return 0.0


@editor("AMP304")
def loss_on_logits(case: Case) -> None:
    """`binary_cross_entropy(sigmoid(x), y)` becomes the with-logits loss."""
    tree = case.tree
    statement = tree.plain_statement(case.line)
    calls = [c for c in tree.expressions(statement) if isinstance(c, cst.Call)]
    losses = [c for c in calls if last_name(c.func) == "binary_cross_entropy" and c.args]
    for loss in losses:
        probability = loss.args[0].value
        if not isinstance(probability, cst.Call) or last_name(probability.func) != "sigmoid":
            continue
        logits = (
            probability.func.value
            if not probability.args and isinstance(probability.func, cst.Attribute)
            else None
        )
        logits = logits or (probability.args[0].value if probability.args else None)
        if logits is None:
            continue
        case.edits(tree).replace(probability, tree.code(logits))
        name = loss.func.attr if isinstance(loss.func, cst.Attribute) else loss.func
        case.edits(tree).replace(name, "binary_cross_entropy_with_logits")
    if not case.edits(tree):
        raise Refused("the probabilities are made elsewhere than the loss, and may be used for more than it")


@editor("AMP508")
def accumulate_in_float32(case: Case) -> None:
    """What is added to the running sum is converted with `.float()`."""
    tree = case.tree
    statement = tree.plain_statement(case.line)
    if isinstance(statement, cst.AugAssign) and isinstance(statement.target, cst.Name):
        added, total = statement.value, statement.target.value
        case.edits(tree).replace_statement(statement, f"{total} = {total} + {_float_code(tree, added)}")
        return
    if not isinstance(statement, cst.Assign) or not isinstance(statement.targets[0].target, cst.Name):
        raise Refused(f"{tree.place(statement)} is no sum that is kept in a variable")
    total = statement.targets[0].target.value
    sums = [n for n in tree.expressions(statement) if isinstance(n, cst.BinaryOperation)]
    added_nodes = [s.right for s in sums if isinstance(s.left, cst.Name) and s.left.value == total]
    if len(added_nodes) != 1 or is_number(tree, added_nodes[0]):
        raise Refused(f"what is added at {tree.place(statement)} is not clear")
    code = tree.code(added_nodes[0])
    for node in tree.expressions(statement):
        if tree.code(node) == code and node not in case.edits(tree).replaced:
            case.edits(tree).rewrite(node, as_float)


def _float_code(tree: Tree, node: cst.BaseExpression) -> str:
    return cst.Module([]).code_for_node(as_float(node))
