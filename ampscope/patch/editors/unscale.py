"""Where `scaler.unscale_(optimizer)` belongs: before the gradients are used, once per step."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from ampscope.patch.editor import editor
from ampscope.patch.names import binds, last_name, reads
from ampscope.patch.project import Case, Project, ScalerStep, written_steps
from ampscope.patch.refused import Refused
from ampscope.patch.tree import Statement, Tree

CLIPS = ("clip_grad_norm_", "clip_grad_value_")


@editor("AMP101")
def unscale_before_use(case: Case) -> None:
    """`unscale_` before the clip, or right after backward where an edit of the gradients has no line."""
    clips = case.sites(*CLIPS)
    steps = case.project.steps_of(case.project.optimizers_of(case.sites()))
    if clips and any(clips[0].n > 1.5 * _step_count(case.project, step) for step in steps):
        raise Refused("the gradients are clipped in every micro-batch: clip once, where the optimizer steps")
    for step in steps:
        if clips:
            _unscale_at(case, step, _user_statement(case, step))
        else:
            _unscale_after_backward(case, step)


def _step_count(project: Project, step: ScalerStep) -> int:
    return sum(s.n for s in project.of_kind("scaler.step") if s.target == step.name)


def _user_statement(case: Case, step: ScalerStep) -> Statement:
    """The statement of the step's function that clips: the clip itself, or the call of the function with it."""
    tree = case.tree
    found = tree.calls(case.line, *CLIPS)
    if not found:
        raise Refused(f"{tree.file.path.name}:{case.line} does not itself clip: a library does")
    clip = found[0]
    if tree is step.tree and tree.function(clip) is tree.function(step.call):
        return tree.statement(clip)
    helper = tree.function(clip)
    name = helper.name.value if isinstance(helper, cst.FunctionDef) else ""
    inside = step.tree.nodes(cst.Call, step.tree.function(step.call))
    calls = [c for c in inside if name and name in (last_name(c.func), *step.tree.names_of(c.func))]
    if len(calls) != 1:
        raise Refused(f"the clip at {tree.place(clip)} stands in another function than scaler.step")
    return step.tree.statement(calls[0])


def _unscale_at(case: Case, step: ScalerStep, use: Statement) -> None:
    """`unscale_` goes before `use`; one that came too late moves there."""
    tree, edits = step.tree, case.edits(step.tree)
    late = own_unscales(tree, step)
    if late:
        if len(late) > 1 or tree.line(late[0]) < tree.line(use):
            raise Refused(f"{step.scaler}.unscale_ is called at {tree.place(late[0])} already")
        edits.move_before(late, use)
        return
    edits.insert_before(use, unscale_code(step), key=f"unscale {id(tree.function(use))} {step.optimizer}")


def unscale_code(step: ScalerStep) -> str:
    return f"{step.scaler}.unscale_({step.optimizer})"


def own_unscales(tree: Tree, step: ScalerStep) -> list[Statement]:
    """The statements of the step's function that unscale its optimizer."""
    calls = tree.nodes(cst.Call, tree.function(step.call))
    return [tree.statement(c) for c in calls if tree.code(c) == unscale_code(step)]


def _unscale_after_backward(case: Case, step: ScalerStep) -> None:
    tree = step.tree
    lines = [s.line for s in case.project.of_kind("backward") if s.file == tree.file.recorded]
    backwards = [c for line in lines for c in tree.calls(line, "backward")]
    ahead = [s for b in backwards if (s := tree.in_block_of(b, step.statement)) is not None]
    if not ahead:
        raise Refused(
            "backward and scaler.step stand in different blocks, and the edit between them has no line"
        )
    last = max(ahead, key=tree.line)
    key = f"unscale {id(tree.function(step.call))} {step.optimizer}"
    case.edits(tree).insert_after(last, unscale_code(step), key=key)


@editor("AMP102", "AMP108")
def unscale_where_it_steps(case: Case) -> None:
    """`unscale_`, the clip and what uses its result move in front of `scaler.step`."""
    tree = case.tree
    found = tree.calls(case.line, "unscale_")
    if not found or not found[0].args or not isinstance(found[0].func, cst.Attribute):
        raise Refused(f"{tree.file.path.name}:{case.line} does not itself call unscale_")
    step = _step_of(tree, found[0])
    unscale = tree.statement(found[0])
    if tree.block(unscale) is tree.block(step.statement):
        raise Refused("unscale_ and scaler.step run equally often")
    moved = _with_its_users(tree, unscale, step)
    _check_left_behind(tree, moved, step)
    case.edits(tree).move_before(moved, step.statement)


def _step_of(tree: Tree, unscale: cst.Call) -> ScalerStep:
    optimizer = tree.code(unscale.args[0].value)
    assert isinstance(unscale.func, cst.Attribute)
    steps = [
        s for s in written_steps(tree, unscale, tree.code(unscale.func.value)) if s.optimizer == optimizer
    ]
    if len(steps) != 1:
        raise Refused(f"unscale_ and scaler.step of {optimizer} do not stand in one function, once each")
    return steps[0]


def _with_its_users(tree: Tree, unscale: Statement, step: ScalerStep) -> list[Statement]:
    """The statement, the clips of its block, and what there uses a name that one of these binds."""
    end = tree.in_block_of(step.call, unscale)
    moved: list[Statement] = []
    names: frozenset[str] = frozenset()
    for one in tree.siblings(unscale):
        if one is end:
            break
        clips = any(last_name(c.func) in CLIPS for c in tree.nodes(cst.Call, one))
        if one is unscale or clips or names & reads(one) or _uses_gradients(tree, one, unscale):
            if tree.line(one) < tree.line(unscale) and not clips:
                continue
            moved.append(one)
            names |= binds(one)
    return moved


def _uses_gradients(tree: Tree, one: Statement, unscale: Statement) -> bool:
    later = tree.line(one) > tree.line(unscale)
    return later and any(a.attr.value == "grad" for a in tree.nodes(cst.Attribute, one))


def _check_left_behind(tree: Tree, moved: Sequence[Statement], step: ScalerStep) -> None:
    """Raises Refused when a statement that stays needs a name which now is bound in some iterations only."""
    names = binds(*moved)
    function = tree.function(step.call)
    below = {n for m in moved for n in tree.nodes(cst.Name, m)}
    loop = tree.loop(step.call)
    for name in tree.nodes(cst.Name, function):
        if name.value not in names or name in below:
            continue
        statement = tree.statement(name)
        same = tree.in_block_of(name, step.statement)
        if same is not None and tree.line(same) >= tree.line(step.statement):
            continue
        if loop is not None and loop not in list(tree.ancestors(statement)):
            continue
        raise Refused(f"`{name.value}` is used in every micro-batch, at {tree.place(name)}")
