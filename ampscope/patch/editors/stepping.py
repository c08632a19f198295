"""Where `scaler.step` and `scaler.update` belong: a step goes through the scaler, each step has one update."""

from __future__ import annotations

import libcst as cst

from ampscope.patch.editor import editor
from ampscope.patch.names import is_reference, last_name
from ampscope.patch.project import Case, ScalerStep, visible, written_steps
from ampscope.patch.refused import Refused
from ampscope.patch.tree import Statement, Tree


@editor("AMP103")
def update_once_per_step(case: Case) -> None:
    """`update()` after the last step where there is none; before a `continue` that jumps over it."""
    steps = _steps_in_function_of(case)
    last = steps[-1]
    tree, edits = last.tree, case.edits(last.tree)
    updates = _updates(tree, last)
    if not updates:
        edits.insert_after(
            last.statement, update_code(last), key=f"update {id(tree.function(last.call))}", keep="last"
        )
        return
    jumps = [
        jump
        for jump in tree.nodes(cst.Continue, tree.function(last.call))
        if _jumps_over(tree, jump, updates[0], _first_scaler_use(tree, last))
    ]
    if not jumps:
        raise Refused(
            f"{last.scaler}.update() is called at {tree.place(updates[0])}, and no `continue` jumps over it"
        )
    for jump in jumps:
        edits.insert_before(jump, update_code(last))


def update_code(step: ScalerStep) -> str:
    return f"{step.scaler}.update()"


def _steps_in_function_of(case: Case) -> list[ScalerStep]:
    """The scaler steps in the function of the finding's line, in order of the source."""
    tree = case.tree
    calls = [
        c for c in tree.calls(case.line, "step", "unscale_", "update") if isinstance(c.func, cst.Attribute)
    ]
    if not calls:
        raise Refused(f"{tree.file.path.name}:{case.line} does not itself call the scaler")
    assert isinstance(calls[0].func, cst.Attribute)
    steps = written_steps(tree, calls[0], tree.code(calls[0].func.value))
    if not steps:
        raise Refused(f"the function round {tree.place(calls[0])} does not call scaler.step")
    return steps


def _updates(tree: Tree, step: ScalerStep) -> list[Statement]:
    """The statements that update the scaler of a step in its function."""
    calls = tree.nodes(cst.Call, tree.function(step.call))
    return [
        tree.statement(c)
        for c in calls
        if last_name(c.func) == "update" and tree.code(c.func) == f"{step.scaler}.update"
    ]


def _first_scaler_use(tree: Tree, step: ScalerStep) -> int:
    """First line of the function that unscales or steps this scaler: before it there is nothing to update."""
    lines = [
        tree.line(c)
        for c in tree.nodes(cst.Call, tree.function(step.call))
        if tree.code(c.func) in (f"{step.scaler}.unscale_", f"{step.scaler}.step")
    ]
    return min(lines)


def _jumps_over(tree: Tree, jump: cst.Continue, update: Statement, begins: int) -> bool:
    same_loop = tree.loop(jump) is tree.loop(update)
    return same_loop and begins < tree.line(jump) < tree.line(update)


@editor("AMP104")
def update_where_it_steps(case: Case) -> None:
    """`update()` moves into the branch of `scaler.step`."""
    tree = case.tree
    found = tree.calls(case.line, "update")
    if not found:
        raise Refused(f"{tree.file.path.name}:{case.line} does not itself call scaler.update")
    update = tree.statement(found[0])
    last = _steps_in_function_of(case)[-1]
    if tree.block(update) is tree.block(last.statement):
        raise Refused("update() and scaler.step run equally often")
    if not isinstance(update, cst.Expr):
        raise Refused(f"{tree.place(update)} does more than update")
    case.edits(tree).move_after([update], last.statement)


@editor("AMP105")
def step_through_the_scaler(case: Case) -> None:
    """`optimizer.step()` becomes `scaler.step(optimizer)`, with an update() after it if there is none."""
    tree = case.tree
    found = [c for c in tree.calls(case.line, "step") if isinstance(c.func, cst.Attribute)]
    if not found:
        raise Refused(f"{tree.file.path.name}:{case.line} does not itself call optimizer.step")
    call = found[0]
    assert isinstance(call.func, cst.Attribute)
    if call.args or not is_reference(call.func.value):
        raise Refused("a step with a closure cannot go through a GradScaler")
    scaler = _scaler_here(case, tree, call)
    step = ScalerStep(tree, call, tree.statement(call), scaler, tree.code(call.func.value), None)
    edits = case.edits(tree)
    edits.replace(call, f"{scaler}.step({step.optimizer})")
    updates = _updates(tree, step)
    if not updates:
        key = f"update {id(tree.function(call))} {scaler}"
        edits.insert_after(step.statement, update_code(step), key=key, keep="last")
        return
    early = [u for u in updates if tree.line(u) < tree.line(call)]
    if early == updates:
        if tree.block(updates[-1]) is not tree.block(step.statement):
            raise Refused(
                f"{scaler}.update() at {tree.place(updates[-1])} comes before this step, in another block"
            )
        edits.move_after([updates[-1]], step.statement)


def _scaler_here(case: Case, tree: Tree, place: cst.CSTNode) -> str:
    """The scaler that scales the loss, as it can be written at `place`."""
    written: dict[str, None] = {}
    for site in case.project.of_kind("scaler.scale"):
        other = case.project.tree(site.file)
        for call in other.calls(site.line, "scale"):
            if not isinstance(call.func, cst.Attribute) or not is_reference(call.func.value):
                continue
            code = other.code(call.func.value)
            if other is tree and visible(tree, code, call, place):
                written[code] = None
    if len(written) != 1:
        raise Refused(
            "which scaler to step through is not clear from the source"
            if written
            else "the scaler that scales the loss is not visible where the optimizer steps"
        )
    return next(iter(written))


@editor("AMP109")
def clear_in_every_iteration(case: Case) -> None:
    """`zero_grad` before the backward, in runs without accumulation."""
    if case.project.facts.micro > 1:
        raise Refused("several backward calls lead to one step, and where their window begins is not clear")
    tree = case.tree
    found = tree.calls(case.line, "backward")
    if not found:
        raise Refused(f"{tree.file.path.name}:{case.line} does not itself call backward")
    backward = tree.statement(found[0])
    function = tree.function(found[0])
    steps = [s for s in case.project.scaler_steps if s.tree is tree and tree.function(s.call) is function]
    if not steps:
        raise Refused("backward and scaler.step stand in different functions")
    for step in steps:
        case.edits(tree).insert_before(backward, f"{step.optimizer}.zero_grad(set_to_none=True)")
