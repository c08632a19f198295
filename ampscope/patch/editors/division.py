"""A division of the gradients by the loss scale, made by hand, becomes `scaler.unscale_(optimizer)`."""

from __future__ import annotations

import libcst as cst

from ampscope.patch.editor import editor
from ampscope.patch.editors.unscale import unscale_code
from ampscope.patch.names import binds, last_name, reads
from ampscope.patch.project import Case, Project, ScalerStep
from ampscope.patch.refused import Refused
from ampscope.patch.tree import Statement, Tree


@editor("AMP106")
def unscale_instead_of_dividing(case: Case) -> None:
    """The division by hand becomes `unscale_`: a loop over the gradients, or the call of a helper that is one."""
    step = _only_step(case)
    tree, division = _division(case.project)
    whole = _whole_loop(tree, division)
    helper = tree.function(division)
    if tree is step.tree and helper is step.tree.function(step.call):
        edits = case.edits(tree)
        edits.replace_statement(whole, unscale_code(step))
        _drop_unused(case, tree, whole)
        return
    if not isinstance(helper, cst.FunctionDef) or not _does_nothing_else(tree, helper, whole):
        raise Refused(f"the function that divides at {tree.place(division)} does other things too")
    name = helper.name.value
    calls = [c for c in step.tree.nodes(cst.Call, step.tree.function(step.call)) if last_name(c.func) == name]
    if len(calls) != 1 or not isinstance(step.tree.statement(calls[0]), cst.Expr):
        raise Refused(f"{name} is not called by a statement of its own where the optimizer steps")
    case.edits(step.tree).replace(calls[0], unscale_code(step))


def _only_step(case: Case) -> ScalerStep:
    steps = case.project.steps_of(frozenset())
    if len(steps) != 1:
        raise Refused("several optimizers step, and the division by hand does not say for which it is")
    return steps[0]


def _division(project: Project) -> tuple[Tree, Statement]:
    """The one statement that multiplies or divides a gradient in place by something made of the loss scale."""
    found: list[tuple[Tree, Statement]] = []
    for tree in project.trees():
        candidates = [*tree.nodes(cst.Expr), *tree.nodes(cst.AugAssign), *tree.nodes(cst.Assign)]
        found += [(tree, s) for s in candidates if _divides_gradient(tree, s)]
    if len(found) != 1:
        raise Refused("the division by the loss scale was not found as one statement on `.grad`")
    return found[0]


def _divides_gradient(tree: Tree, statement: Statement) -> bool:
    factor: cst.BaseExpression | None = None
    if isinstance(statement, cst.Expr) and isinstance(statement.value, cst.Call):
        call = statement.value
        if last_name(call.func) in ("mul_", "div_") and isinstance(call.func, cst.Attribute) and call.args:
            factor = call.args[0].value if _is_gradient(call.func.value) else None
    elif isinstance(statement, cst.AugAssign):
        if isinstance(statement.operator, cst.MultiplyAssign | cst.DivideAssign) and _is_gradient(
            statement.target
        ):
            factor = statement.value
    elif isinstance(statement, cst.Assign) and isinstance(statement.value, cst.BinaryOperation):
        value = statement.value
        gradient = _is_gradient(statement.targets[0].target) and _is_gradient(value.left)
        if gradient and isinstance(value.operator, cst.Multiply | cst.Divide):
            factor = value.right
    return factor is not None and _made_of_scale(tree, factor)


def _is_gradient(node: cst.CSTNode) -> bool:
    if isinstance(node, cst.Attribute) and node.attr.value == "data":
        node = node.value
    return isinstance(node, cst.Attribute) and node.attr.value == "grad"


def _made_of_scale(tree: Tree, factor: cst.BaseExpression, depth: int = 3) -> bool:
    """Whether `get_scale` is called for it, directly or through variables of the same function."""
    if any(last_name(c.func) == "get_scale" for c in tree.nodes(cst.Call, factor)):
        return True
    if not depth:
        return False
    names = reads(factor)
    scope = tree.function(factor)
    return any(
        binds(a) & names and _made_of_scale(tree, a.value, depth - 1)
        for a in [*tree.nodes(cst.Assign, scope), *tree.nodes(cst.Assign)]
    )


def _whole_loop(tree: Tree, division: Statement) -> Statement:
    """The loop over parameters that does nothing but divide, with its guard and `no_grad`; else Refused."""
    whole: Statement = division
    for one in tree.ancestors(division):
        if isinstance(one, cst.FunctionDef | cst.Module):
            break
        if isinstance(one, cst.For | cst.If | cst.With) and tree.siblings(whole) == [whole]:
            if isinstance(one, cst.If) and not any(map(_is_gradient, tree.nodes(cst.Attribute, one.test))):
                break
            whole = one
    if not isinstance(whole, cst.For | cst.With) and any(
        map(_is_gradient, tree.nodes(cst.Attribute, division))
    ):
        raise Refused(f"the loop that divides at {tree.place(division)} does other things too")
    return whole


def _does_nothing_else(tree: Tree, helper: cst.FunctionDef, whole: Statement) -> bool:
    others = [s for s in tree.siblings(whole) if s is not whole]
    plain = all(isinstance(s, cst.Assign) or _docstring(s) for s in others)
    return plain and tree.function(whole) is helper


def _docstring(statement: Statement) -> bool:
    return isinstance(statement, cst.Expr) and isinstance(statement.value, cst.SimpleString)


def _drop_unused(case: Case, tree: Tree, whole: Statement) -> None:
    """Remove an assignment just above that only the division used."""
    for one in tree.siblings(whole):
        if not isinstance(one, cst.Assign) or tree.line(one) > tree.line(whole):
            continue
        names = binds(one)
        inside = set(tree.nodes(cst.Name, whole))
        used = [n for n in tree.nodes(cst.Name) if n.value in names and n not in inside]
        if names & reads(whole) and all(tree.statement(n) is one for n in used):
            case.edits(tree).remove(one)
