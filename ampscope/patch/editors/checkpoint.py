"""The GradScaler's state goes into the checkpoint, beside that of the optimizer."""

from __future__ import annotations

import libcst as cst

from ampscope.patch.arguments import setting
from ampscope.patch.editor import editor
from ampscope.patch.names import is_reference, last_name, root_name
from ampscope.patch.project import Case
from ampscope.patch.refused import Refused
from ampscope.patch.tree import Tree

KEY = "scaler"


@editor("AMP113")
def save_and_load_scaler(case: Case) -> None:
    """A key more in the dict that is saved, and a load after that of the optimizer."""
    tree = case.tree
    found = [c for c in tree.calls(case.line, "load_state_dict") if c.args]
    if not found:
        raise Refused(f"{tree.file.path.name}:{case.line} does not itself load the optimizer's state")
    load = found[0]
    state = load.args[0].value
    if not isinstance(state, cst.Subscript) or not is_reference(state):
        raise Refused("the optimizer's state does not come out of a checkpoint dict")
    scaler = _scaler_name(case, tree)
    saved = _saved_dicts(case)
    if len(saved) != 1:
        raise Refused("the dict that is saved with the optimizer's state was not found")
    where, entries = saved[0]
    _check_visible(tree, scaler, load)
    _check_visible(where, scaler, entries)
    container = tree.code(state.value)
    statement = tree.statement(load)
    code = f'if "{KEY}" in {container}:\n    {scaler}.load_state_dict({container}["{KEY}"])'
    case.edits(tree).insert_after(statement, code)
    if isinstance(entries, cst.Call):
        case.edits(where).rewrite(entries, setting(KEY, f"{scaler}.state_dict()"))
    else:
        case.edits(where).rewrite(entries, lambda old: _with_entry(old, scaler))


def _scaler_name(case: Case, tree: Tree) -> str:
    names = {s.scaler for s in case.project.scaler_steps}
    if len(names) != 1:
        raise Refused("several scalers step")
    return names.pop()


def _saved_dicts(case: Case) -> list[tuple[Tree, cst.Dict | cst.Call]]:
    """Dicts, and calls of `dict`, with `optimizer.state_dict()` as a value, the optimizer being one that a scaler
    steps."""
    optimizers = {s.optimizer for s in case.project.scaler_steps}
    found: list[tuple[Tree, cst.Dict | cst.Call]] = []
    for tree in case.project.trees():
        calls = [c for c in tree.calls(None, "dict") if isinstance(c.func, cst.Name)]
        candidates: list[cst.Dict | cst.Call] = [*tree.nodes(cst.Dict), *calls]
        for entries in candidates:
            values = _values(entries)
            states = [v for v in values if isinstance(v, cst.Call) and last_name(v.func) == "state_dict"]
            owners = [v.func.value for v in states if isinstance(v.func, cst.Attribute)]
            if any(tree.code(owner) in optimizers for owner in owners):
                found.append((tree, entries))
    return found


def _values(entries: cst.Dict | cst.Call) -> list[cst.BaseExpression]:
    if isinstance(entries, cst.Call):
        return [arg.value for arg in entries.args if arg.keyword is not None]
    return [e.value for e in entries.elements if isinstance(e, cst.DictElement)]


def _check_visible(tree: Tree, scaler: str, place: cst.CSTNode) -> None:
    """Raises Refused unless the scaler's name is bound where `place` stands: in its function or in the file."""
    root = root_name(cst.parse_expression(scaler))
    known = {*tree.local_names(tree.function(place)), *tree.global_names}
    if root != "self" and root not in known:
        raise Refused(f"`{scaler}` has no meaning at {tree.place(place)}")
    if root == "self" and tree.class_of(place) is None:
        raise Refused(f"`{scaler}` has no meaning at {tree.place(place)}")


def _with_entry(entries: cst.CSTNode, scaler: str) -> cst.CSTNode:
    """The dict with one more entry, in the layout of its last one."""
    assert isinstance(entries, cst.Dict)
    entry = cst.DictElement(cst.SimpleString(f'"{KEY}"'), cst.parse_expression(f"{scaler}.state_dict()"))
    *rest, last = entries.elements
    between = rest[-1].comma if rest else cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    trailing = last.comma
    if not isinstance(between, cst.Comma):
        between = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    return entries.with_changes(
        elements=[*rest, last.with_changes(comma=between), entry.with_changes(comma=trailing)]
    )
