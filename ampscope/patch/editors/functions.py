"""A custom autograd.Function that follows autocast: `custom_fwd` and `custom_bwd`."""

from __future__ import annotations

import libcst as cst

from ampscope.patch.editor import editor
from ampscope.patch.names import last_name
from ampscope.patch.project import Case
from ampscope.patch.refused import Refused
from ampscope.patch.tree import Tree


@editor("AMP123")
def decorate_function(case: Case) -> None:
    """Forward and backward of the Function round the finding's line are decorated."""
    tree = case.tree
    owner = _class_at(tree, case.line)
    methods = {f.name.value: f for f in owner.body.body if isinstance(f, cst.FunctionDef)}
    if not {"forward", "backward"} <= set(methods):
        raise Refused(f"{owner.name.value} does not define both forward and backward")
    device = case.project.facts.device
    dtype = case.project.facts.autocast_dtype or "float16"
    torch = "torch"
    if torch not in tree.global_names:
        case.edits(tree).need_import("torch")
    _decorate(
        case,
        tree,
        methods["forward"],
        f'torch.amp.custom_fwd(device_type="{device}", cast_inputs=torch.{dtype})',
    )
    _decorate(case, tree, methods["backward"], f'torch.amp.custom_bwd(device_type="{device}")')


def _class_at(tree: Tree, line: int) -> cst.ClassDef:
    found = [
        c
        for c in tree.nodes(cst.ClassDef)
        if tree.line(c) <= line <= tree.span(c).end.line
        and any(last_name(b.value) == "Function" for b in c.bases)
    ]
    if not found:
        raise Refused(f"{tree.file.path.name}:{line} does not stand in an autograd.Function")
    return found[-1]


def _decorate(case: Case, tree: Tree, method: cst.FunctionDef, code: str) -> None:
    known = {
        last_name(d.decorator.func if isinstance(d.decorator, cst.Call) else d.decorator)
        for d in method.decorators
    }
    if known & {"custom_fwd", "custom_bwd"}:
        raise Refused(f"{method.name.value} is decorated already")
    decorator = cst.Decorator(cst.parse_expression(code))
    case.edits(tree).rewrite(method, lambda old: _with_decorator(old, decorator))


def _with_decorator(method: cst.CSTNode, decorator: cst.Decorator) -> cst.CSTNode:
    assert isinstance(method, cst.FunctionDef)
    return method.with_changes(decorators=[*method.decorators, decorator])
