"""Where autocast begins and ends, and for which device."""

from __future__ import annotations

import libcst as cst

from ampscope.patch.arguments import argument, has_star, setting
from ampscope.patch.casts import as_float
from ampscope.patch.editor import editor
from ampscope.patch.editors.arguments import constructor
from ampscope.patch.names import is_reference, last_name
from ampscope.patch.project import Case
from ampscope.patch.refused import Refused
from ampscope.patch.sites import Site
from ampscope.patch.tree import Statement, Tree


@editor("AMP118")
def end_before_backward(case: Case) -> None:
    """The backward call and what follows it move out of the autocast context."""
    tree = case.tree
    found = tree.calls(case.line, "backward")
    if not found:
        raise Refused(f"{tree.file.path.name}:{case.line} does not itself call backward")
    backward = tree.statement(found[0])
    context = autocast_round(tree, backward)
    if context is None or tree.block(backward) is not context.body:
        raise Refused("the backward call is not a statement directly inside the autocast context")
    moved = [backward, *tree.following(backward)]
    if moved[0] is tree.siblings(backward)[0]:
        raise Refused("nothing but the backward call stands in the autocast context")
    _check_no_forward(case, tree, moved)
    case.edits(tree).move_after(moved, context)


def autocast_round(tree: Tree, node: cst.CSTNode) -> cst.With | None:
    """The innermost `with …autocast(…)` of the same function that holds a node."""
    for one in tree.ancestors(node):
        if isinstance(one, cst.FunctionDef):
            return None
        if isinstance(one, cst.With) and any(_is_autocast(tree, item.item) for item in one.items):
            return one
    return None


def _is_autocast(tree: Tree, item: cst.BaseExpression) -> bool:
    return isinstance(item, cst.Call) and (
        last_name(item.func) == "autocast" or any(n.endswith(".autocast") for n in tree.names_of(item.func))
    )


def _check_no_forward(case: Case, tree: Tree, moved: list[Statement]) -> None:
    for site in case.project.of_kind("forward"):
        here = site.file == tree.file.recorded
        if here and any(tree.span(s).start.line <= site.line <= tree.span(s).end.line for s in moved):
            raise Refused(f"a model runs after backward, at line {site.line}, and needs the context")


@editor("AMP120")
def autocast_for_the_device(case: Case) -> None:
    """The device type that autocast and GradScaler are given becomes that of the training."""
    device = case.project.facts.device
    foreign = [s for s in case.sites("autocast.enter") if s.target not in (None, device)]
    if not foreign:
        raise Refused("where the context has to be entered cannot be read from the source")
    scalers = [s for s in case.project.of_kind("scaler.init") if s.target not in (None, device)]
    for site in (*foreign[:1], *_by_place(scalers)):
        _set_device(case, site, device)


def _by_place(sites: list[Site]) -> list[Site]:
    return list({(s.file, s.line): s for s in sites}.values())


def _set_device(case: Case, site: Site, device: str) -> None:
    tree = case.project.tree(site.file)
    call, order = constructor(tree, site)
    name = order[0]
    known = argument(call, name, order)
    if name not in ("device", "device_type"):
        raise Refused(f"{tree.place(call)} is the old spelling, which has no device argument (AMP119)")
    if known is None and site.call == "scaler.init" and not has_star(call):
        case.edits(tree).rewrite(call, setting(name, f'"{device}"'))
    elif known is not None and isinstance(known.value, cst.SimpleString):
        case.edits(tree).replace(known.value, f'"{device}"')
    else:
        raise Refused(f"{tree.place(call)} takes its device type from elsewhere")


@editor("AMP122")
def no_cache_across_steps(case: Case) -> None:
    """`cache_enabled=False` for the context in which the optimizer steps."""
    tree = case.tree
    found = tree.calls(case.line, "step")
    context = autocast_round(tree, found[0]) if found else None
    if context is None:
        raise Refused("the autocast context stands in another function than the optimizer step")
    for item in context.items:
        if isinstance(item.item, cst.Call) and _is_autocast(tree, item.item):
            if has_star(item.item):
                raise Refused(f"{tree.place(item.item)} passes its arguments with * or **")
            case.edits(tree).rewrite(item.item, setting("cache_enabled", "False"))


@editor("AMP124")
def float_where_it_leaves(case: Case) -> None:
    """The arguments of the float32 consumer get `.float()`."""
    if "Half and Float" not in case.finding.claim and "BFloat16 and Float" not in case.finding.claim:
        raise Refused("which of the operands is the half one is not clear from the error")
    tree = case.tree
    calls = [c for c in tree.calls(case.line) if not _is_library(tree, c)]
    calls = [c for c in calls if c.args and is_reference(c.args[0].value) and not c.args[0].star]
    consumers = {tree.code(c.func) for c in calls}
    if len(consumers) != 1:
        raise Refused(f"which call at {tree.file.path.name}:{case.line} meets the half tensor is not clear")
    for call in calls:
        case.edits(tree).rewrite(call.args[0].value, as_float)


def _is_library(tree: Tree, call: cst.Call) -> bool:
    return any(n.split(".")[0] in ("torch", "builtins") for n in tree.names_of(call.func))
