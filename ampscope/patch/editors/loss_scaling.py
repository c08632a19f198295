"""A GradScaler for a loop that has none; bfloat16 where that is not mechanical and the device computes in it."""

from __future__ import annotations

import libcst as cst

from ampscope.patch.arguments import argument
from ampscope.patch.editor import editor
from ampscope.patch.editors.arguments import constructor, set_arguments
from ampscope.patch.editors.unscale import CLIPS
from ampscope.patch.names import is_reference, last_name, targets
from ampscope.patch.project import Case, Project, visible
from ampscope.patch.refused import Refused
from ampscope.patch.sites import Site
from ampscope.patch.tree import Scope, Statement, Tree, identifiers


@editor("AMP115")
def add_scaler(case: Case) -> None:
    """`scaler = GradScaler(…)`, scale, step and update; else autocast in bfloat16 where it is native."""
    facts = case.project.facts
    if facts.half_params:
        raise Refused(
            "trainable parameters are stored in float16, whose gradients GradScaler does not unscale"
        )
    if case.project.of_kind("scaler.init"):
        _switch_on(case)
        return
    try:
        _add_scaler(case)
    except Refused:
        if not facts.bf16_native:
            raise
        case.edited.clear()
        set_arguments(_with_bf16(case))


def _switch_on(case: Case) -> None:
    """A GradScaler that the script makes and disables."""
    for site in case.project.of_kind("scaler.init"):
        tree = case.project.tree(site.file)
        call, order = constructor(tree, site)
        enabled = argument(call, "enabled", order)
        if enabled is None or tree.code(enabled.value) != "False":
            raise Refused(f"what switches the GradScaler at {tree.place(call)} off is not in that line")
        case.edits(tree).replace(enabled.value, "True")


def _with_bf16(case: Case) -> Case:
    from dataclasses import replace

    change = replace(case.finding.change, set={"autocast.dtype": "bfloat16"})
    return Case(replace(case.finding, change=change), case.project, case.edited)


def _add_scaler(case: Case) -> None:
    tree = case.tree
    backwards = [
        c for c in tree.calls(case.line, "backward") if isinstance(c.func, cst.Attribute) and not c.args
    ]
    if len(backwards) != 1:
        raise Refused(f"{tree.file.path.name}:{case.line} holds no plain call of backward")
    backward = backwards[0]
    step, optimizer = _plain_step(case, tree, backward)
    scaler, after = _creation(case, tree, optimizer, step)
    edits = case.edits(tree)
    edits.insert_after(after, f'{scaler} = torch.amp.GradScaler("{case.project.facts.device}")')
    if "torch" not in tree.global_names:
        edits.need_import("torch")
    assert isinstance(backward.func, cst.Attribute)
    loss = backward.func.value
    edits.rewrite(loss, lambda old: cst.Call(cst.parse_expression(f"{scaler}.scale"), [cst.Arg(_bare(old))]))
    elsewhere = [s for s in case.project.of_kind(*CLIPS) if not _in_function(tree, s, tree.function(step))]
    if elsewhere:
        raise Refused(f"gradients are clipped in another function, at line {elsewhere[0].line}")
    use = _gradient_use(tree, backward, step)
    if use is not None:
        edits.insert_before(use, f"{scaler}.unscale_({optimizer})")
    edits.replace(step, f"{scaler}.step({optimizer})")
    edits.insert_after(tree.statement(step), f"{scaler}.update()")


def _bare(loss: cst.CSTNode) -> cst.BaseExpression:
    assert isinstance(loss, cst.BaseExpression)
    return loss.with_changes(lpar=[], rpar=[])


def _plain_step(case: Case, tree: Tree, backward: cst.Call) -> tuple[cst.Call, str]:
    """The one call `optimizer.step()` of the backward's function."""
    sites = [s for s in case.project.of_kind("optimizer.step") if s.file == tree.file.recorded]
    if len({s.object for s in sites}) != 1 or len({s.line for s in sites}) != 1:
        raise Refused("several optimizers step, or one steps in several places")
    call = case.project.call_at(sites[0], "step")
    if call.args or not isinstance(call.func, cst.Attribute) or not is_reference(call.func.value):
        raise Refused("a step with a closure cannot go through a GradScaler")
    if tree.function(call) is not tree.function(backward):
        raise Refused("backward and optimizer.step stand in different functions")
    return call, tree.code(call.func.value)


def _creation(case: Case, tree: Tree, optimizer: str, step: cst.Call) -> tuple[str, Statement]:
    """The scaler's name, and the statement after which it is made: the one that makes the optimizer."""
    made = _construction(case.project, tree, optimizer)
    taken = identifiers(tree)
    name = next(n for n in ("scaler", "grad_scaler", "loss_scaler", "amp_scaler") if n not in taken)
    scaler = f"self.{name}" if optimizer.startswith("self.") else name
    if tree.loop(made) is not None and tree.loop(made) is tree.loop(step):
        raise Refused("the optimizer is made inside the loop that steps it")
    if not visible(tree, optimizer, made, step):
        raise Refused("the optimizer is made in another function than the one that steps it")
    return scaler, made


def _construction(project: Project, tree: Tree, optimizer: str) -> Statement:
    for site in project.of_kind("optimizer.init"):
        if site.file != tree.file.recorded:
            continue
        for call in tree.calls(site.line):
            statement = tree.statement(call)
            if any(tree.code(t) == optimizer for t in targets(statement)):
                return statement
    raise Refused(f"the line that makes `{optimizer}` was not found in {tree.file.path.name}")


def _in_function(tree: Tree, site: Site, function: Scope) -> bool:
    """Whether a site stands in a function of the file."""
    return site.file == tree.file.recorded and any(
        tree.function(c) is function for c in tree.calls(site.line, *CLIPS)
    )


def _gradient_use(tree: Tree, backward: cst.Call, step: cst.Call) -> Statement | None:
    """The first statement between backward and step that reads or clips gradients, in the block of the step or
    of the backward."""
    first, last = tree.span(backward).end.line, tree.line(step)
    for one in [*tree.siblings(tree.statement(backward)), *tree.siblings(tree.statement(step))]:
        inside = first < tree.line(one) < last or (tree.line(one) == last and tree.statement(step) is not one)
        if inside and step not in tree.nodes(cst.Call, one) and _touches_gradients(tree, one):
            if tree.block(one) is not tree.block(tree.statement(step)):
                raise Refused(
                    "the gradients are used in every micro-batch, before it is clear whether it steps"
                )
            return one
    return None


def _touches_gradients(tree: Tree, statement: Statement) -> bool:
    clips = any(last_name(c.func) in CLIPS for c in tree.nodes(cst.Call, statement))
    return clips or any(a.attr.value == "grad" for a in tree.nodes(cst.Attribute, statement))
