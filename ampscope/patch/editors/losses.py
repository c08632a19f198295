"""The loss and the loss scale: every loss of a scaler's optimizer is scaled, a penalty on gradients is not."""

from __future__ import annotations

import libcst as cst

from ampscope.patch.editor import editor
from ampscope.patch.names import is_reference, last_name, reads
from ampscope.patch.project import Case, ScalerStep, visible
from ampscope.patch.refused import Refused
from ampscope.patch.tree import Tree


@editor("AMP107")
def scale_the_other_loss(case: Case) -> None:
    """`loss.backward()` becomes `scaler.scale(loss).backward()`; a sum is scaled as a whole."""
    tree = case.tree
    found = [c for c in tree.calls(case.line, "backward") if isinstance(c.func, cst.Attribute)]
    if not found:
        raise Refused(f"{tree.file.path.name}:{case.line} does not itself call backward")
    for call in found:
        scaler = _scaler_for(case, tree, call)
        loss = _loss(tree, call)
        if any(_scales(tree, c, scaler) for c in tree.nodes(cst.Call, loss)):
            if not isinstance(loss, cst.BinaryOperation):
                continue
            _unwrap(case, tree, loss, scaler)
        elif (total := _mixed_sum(tree, loss, scaler)) is not None:
            _unwrap(case, tree, total, scaler)
        _wrap(case, tree, loss, scaler)
    if not case.edits(tree):
        raise Refused(f"every loss at {tree.file.path.name}:{case.line} is scaled in the source")


def _loss(tree: Tree, call: cst.Call) -> cst.BaseExpression:
    """What a backward call starts from: its receiver, or the argument of `torch.autograd.backward`."""
    assert isinstance(call.func, cst.Attribute)
    if "torch.autograd.backward" in tree.names_of(call.func):
        if not call.args:
            raise Refused(f"{tree.place(call)} has no loss that can be scaled")
        return call.args[0].value
    return call.func.value


def _scaler_for(case: Case, tree: Tree, call: cst.Call) -> str:
    """The scaler that divides these gradients, as it can be written at the backward call."""
    steps: list[ScalerStep] = case.project.steps_of(case.project.optimizers_of(case.sites("backward")))
    usable = {s.scaler for s in steps if s.tree is tree and visible(tree, s.scaler, s.call, call)}
    if len(usable) != 1:
        raise Refused("the scaler is not visible where the loss is propagated back")
    return usable.pop()


def _scales(tree: Tree, call: cst.Call, scaler: str) -> bool:
    return last_name(call.func) == "scale" and tree.code(call.func) == f"{scaler}.scale" and bool(call.args)


def _mixed_sum(tree: Tree, loss: cst.BaseExpression, scaler: str) -> cst.BinaryOperation | None:
    """The one assignment that made `loss` a sum of scaled and unscaled terms; None when it is something else."""
    if not isinstance(loss, cst.Name):
        return None
    made = [
        a.value
        for a in tree.nodes(cst.Assign, tree.function(loss))
        if any(isinstance(t.target, cst.Name) and t.target.value == loss.value for t in a.targets)
    ]
    scaled = [m for m in made if any(_scales(tree, c, scaler) for c in tree.nodes(cst.Call, m))]
    if not scaled:
        return None
    if len(made) != 1 or not isinstance(scaled[0], cst.BinaryOperation):
        raise Refused(f"`{loss.value}` is put together from scaled and unscaled parts in several places")
    return scaled[0]


def _unwrap(case: Case, tree: Tree, total: cst.BinaryOperation, scaler: str) -> None:
    """Take the scaling out of the terms of a sum."""
    for term in _terms(total):
        if isinstance(term, cst.Call) and _scales(tree, term, scaler):
            case.edits(tree).rewrite(term, lambda old: _inner(old))
        elif any(_scales(tree, c, scaler) for c in tree.nodes(cst.Call, term)):
            raise Refused(f"one term at {tree.place(term)} is scaled only in part")


def _terms(total: cst.BaseExpression) -> list[cst.BaseExpression]:
    if isinstance(total, cst.BinaryOperation) and isinstance(total.operator, cst.Add | cst.Subtract):
        return [*_terms(total.left), *_terms(total.right)]
    return [total]


def _inner(call: cst.CSTNode) -> cst.BaseExpression:
    """The argument of `scaler.scale(…)`, in parentheses where it is a sum."""
    assert isinstance(call, cst.Call)
    value = call.args[0].value
    if isinstance(value, cst.BinaryOperation | cst.IfExp | cst.UnaryOperation) and not value.lpar:
        value = value.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    return value


def _wrap(case: Case, tree: Tree, loss: cst.BaseExpression, scaler: str) -> None:
    function = cst.parse_expression(f"{scaler}.scale")

    def wrapped(old: cst.CSTNode) -> cst.CSTNode:
        assert isinstance(old, cst.BaseExpression)
        return cst.Call(function, [cst.Arg(old.with_changes(lpar=[], rpar=[]) if old.lpar else old)])

    case.edits(tree).rewrite(loss, wrapped)


@editor("AMP111")
def penalty_on_true_gradients(case: Case) -> None:
    """The results of `autograd.grad` are multiplied by 1/scale right after it."""
    edited = False
    for site in case.project.of_kind("autograd.grad"):
        if site.scaled not in ("scaled", "mixed"):
            continue
        call = case.project.call_at(site, "grad")
        tree = case.project.tree(site.file)
        scaler = _scaler_of_output(tree, call)
        statement = tree.statement(call)
        name, many = _result(tree, call, statement)
        factor = f"(1.0 / {scaler}.get_scale())"
        code = f"{name} = [g * {factor} for g in {name}]" if many else f"{name} = {name} * {factor}"
        case.edits(tree).insert_after(statement, code)
        edited = True
    if not edited:
        raise Refused("no call of autograd.grad on a scaled output was recorded")


def _scaler_of_output(tree: Tree, call: cst.Call) -> str:
    scalers = {
        tree.code(c.func.value)
        for c in tree.nodes(cst.Call, tree.function(call))
        if last_name(c.func) == "scale" and isinstance(c.func, cst.Attribute) and is_reference(c.func.value)
    }
    if len(scalers) != 1:
        raise Refused(f"which scaler scales the output at {tree.place(call)} is not clear from the source")
    return scalers.pop()


def _result(tree: Tree, call: cst.Call, statement: cst.CSTNode) -> tuple[str, bool]:
    """The name that holds the gradients, and whether it is a tuple of them."""
    if not isinstance(statement, cst.Assign) or len(statement.targets) != 1:
        raise Refused(f"the gradients of {tree.place(call)} are not assigned to a name")
    target, value = statement.targets[0].target, statement.value
    if isinstance(target, cst.Name) and value is call:
        return target.value, True
    first = isinstance(value, cst.Subscript) and value.value is call
    if isinstance(target, cst.Name) and first:
        return target.value, False
    if isinstance(target, cst.Tuple | cst.List) and value is call and len(target.elements) == 1:
        element = target.elements[0].value
        if isinstance(element, cst.Name) and element.value in reads(element):
            return element.value, False
    raise Refused(f"the gradients of {tree.place(call)} are not assigned to one name")
