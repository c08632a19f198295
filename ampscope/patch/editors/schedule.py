"""The learning rate schedule advances only when the optimizer stepped."""

from __future__ import annotations

import libcst as cst

from ampscope.patch.editor import editor
from ampscope.patch.names import last_name
from ampscope.patch.project import Case
from ampscope.patch.refused import Refused
from ampscope.patch.tree import identifiers


@editor("AMP112")
def guard_the_scheduler(case: Case) -> None:
    """`scheduler.step()` under `if scaler.get_scale() >= scale_before:`."""
    tree = case.tree
    found = tree.calls(case.line, "step")
    if not found:
        raise Refused(f"{tree.file.path.name}:{case.line} does not itself call scheduler.step")
    advance = tree.statement(found[0])
    function = tree.function(advance)
    steps = [s for s in case.project.scaler_steps if s.tree is tree and tree.function(s.call) is function]
    if len(steps) != 1:
        raise Refused(
            "the scheduler and scaler.step stand in different functions, or several optimizers step"
        )
    step = steps[0]
    updates = [
        s
        for c in tree.nodes(cst.Call, function)
        if last_name(c.func) == "update" and tree.code(c.func) == f"{step.scaler}.update"
        for s in [tree.in_block_of(c, step.statement)]
        if s is not None and tree.line(s) > tree.line(step.statement)
    ]
    if not updates:
        raise Refused(f"{step.scaler}.update() does not follow scaler.step in its block")
    here = tree.in_block_of(advance, step.statement)
    if here is None or tree.line(here) < tree.line(step.statement):
        raise Refused("the scheduler does not step after the optimizer in the same block")
    name = next(
        n for n in ("scale_before", "loss_scale_before", "scale_before_step") if n not in identifiers(tree)
    )
    edits = case.edits(tree)
    edits.insert_before(step.statement, f"{name} = {step.scaler}.get_scale()")
    test = f"if {step.scaler}.get_scale() >= {name}:"
    if tree.line(here) > tree.line(updates[0]):
        edits.wrap([advance], test)
    elif isinstance(advance, cst.Expr) and here is advance:
        edits.insert_after(updates[0], f"{test}\n    {tree.code(advance)}")
        edits.remove(advance)
    else:
        raise Refused("the scheduler steps before scaler.update()")
