"""An eps that half precision loses: what meets it goes to float32, or the eps becomes one that half can hold."""

from __future__ import annotations

import libcst as cst

from ampscope.patch.arguments import setting
from ampscope.patch.casts import as_float, is_float, is_number, operand, plain_op, tensor_leaf
from ampscope.patch.editor import editor
from ampscope.patch.editors.float32 import check_stored_half
from ampscope.patch.names import last_name
from ampscope.patch.project import Case
from ampscope.patch.refused import Refused
from ampscope.patch.tree import Statement, Tree

HALF_EPS = "1e-3"
"""An eps for norms in half: 1/eps times a gradient of order one stays below 65504 with room for a loss scale, which
1e-12 in float32 does not once the gradient is cast back."""

_GUARDED = ("log", "sqrt", "rsqrt", "reciprocal", "log2", "log10")
_CLAMPS = ("clamp", "clamp_min", "clip", "maximum")
_NORMS = ("normalize", "cosine_similarity")


@editor("AMP405")
def hold_the_eps(case: Case) -> None:
    """`.float()` on what meets the eps at the finding's line, and wherever the function uses the same eps."""
    tree = case.tree
    statement = tree.plain_statement(case.line)
    norms = [
        c for c in tree.expressions(statement) if isinstance(c, cst.Call) and last_name(c.func) in _NORMS
    ]
    for call in norms:
        case.edits(tree).rewrite(call, setting("eps", HALF_EPS))
    if norms:
        return
    check_stored_half(case, plain_op(case.finding.where.op))
    numbers = _numbers(tree, statement)
    for one in _same_eps(tree, statement, numbers):
        for node in _meets_eps(tree, one):
            if not is_float(node):
                case.edits(tree).rewrite(node, as_float)
    if not case.edits(tree):
        raise Refused(f"no operand that meets an eps was found at {tree.place(statement)}")


def _numbers(tree: Tree, statement: Statement) -> frozenset[str]:
    """The numbers of a statement, as they are written: the eps is one of them."""
    codes = {tree.code(n) for n in tree.expressions(statement) if is_number(tree, n)}
    return frozenset(code for code in codes if not code.isdigit())


def _same_eps(tree: Tree, statement: Statement, numbers: frozenset[str]) -> list[Statement]:
    scope = tree.function(statement)
    return [s for s in tree.plain_statements(scope) if s is statement or numbers & _numbers(tree, s)]


def _meets_eps(tree: Tree, statement: Statement) -> list[cst.BaseExpression]:
    """The tensors inside a log, a root, a clamp or a denominator of a statement."""
    found: list[cst.BaseExpression] = []
    for node in tree.expressions(statement):
        if isinstance(node, cst.Call) and last_name(node.func) in (*_GUARDED, *_CLAMPS):
            inner = operand(tree, node)
            found += [leaf for leaf in [inner and tensor_leaf(tree, inner)] if leaf is not None]
        elif isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Divide):
            leaf = tensor_leaf(tree, node.right)
            found += [leaf] if leaf is not None and leaf is not node.right else []
    return [
        n for n in dict.fromkeys(found) if not any(o is not n and o in tree.expressions(n) for o in found)
    ]
