"""`torch.cuda.amp` and `torch.cpu.amp` become `torch.amp`, in the whole file."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst

from ampscope.patch.arguments import OLD_AUTOCAST, has_star, keyword, with_argument, with_first, with_keywords
from ampscope.patch.editor import editor
from ampscope.patch.project import Case
from ampscope.patch.refused import Refused
from ampscope.patch.tree import Tree

OLD = {
    f"torch.{device}.amp.{name}": (device, name)
    for device in ("cuda", "cpu")
    for name in ("autocast", "GradScaler", "custom_fwd", "custom_bwd")
}
MODULES = {f"torch.{device}.amp": device for device in ("cuda", "cpu")}


@editor("AMP119")
def new_spelling(case: Case) -> None:
    """Every use of the old names in the file of the finding, and their imports."""
    tree = case.tree
    _check_imports(tree)
    edits = case.edits(tree)
    for call in tree.calls(None):
        if (old := _old(tree, call.func)) is not None:
            if has_star(call):
                raise Refused(f"{tree.place(call)} passes its arguments with * or **")
            edits.rewrite(call, _new_call(*old))
            _rename(case, tree, call.func, old)
    for decorator in tree.nodes(cst.Decorator):
        plain = decorator.decorator
        if not isinstance(plain, cst.Call) and (old := _old(tree, plain)) is not None:
            edits.rewrite(plain, _called_with_device(old[0]))
            _rename(case, tree, plain, old)
    for statement in tree.nodes(cst.ImportFrom):
        if statement.module is not None and tree.code(statement.module) in MODULES:
            edits.replace(statement.module, "torch.amp")
    if not edits:
        raise Refused(f"{tree.file.path.name} itself does not use the old names: a library does")


def _old(tree: Tree, node: cst.CSTNode) -> tuple[str, str] | None:
    """(device, name) of an old name that an expression stands for."""
    return next((OLD[name] for name in tree.names_of(node) if name in OLD), None)


def _check_imports(tree: Tree) -> None:
    """Imports that cannot be renamed one for one."""
    devices = set()
    for statement in tree.nodes(cst.ImportFrom):
        module = tree.code(statement.module) if statement.module is not None else ""
        if module in MODULES:
            devices.add(MODULES[module])
            names = () if isinstance(statement.names, cst.ImportStar) else statement.names
            if not names or any(tree.code(n.name) not in {name for _, name in OLD.values()} for n in names):
                raise Refused(f"{tree.place(statement)} imports more than the deprecated names")
        elif module in ("torch.cuda", "torch.cpu"):
            names = () if isinstance(statement.names, cst.ImportStar) else statement.names
            if any(tree.code(n.name) == "amp" for n in names):
                raise Refused(f"{tree.place(statement)} imports the module `amp` itself")
    if len(devices) > 1:
        raise Refused(f"{tree.file.path.name} imports the old names of two devices")


def _rename(case: Case, tree: Tree, function: cst.BaseExpression, old: tuple[str, str]) -> None:
    """`torch.cuda.amp.X` becomes `torch.amp.X`; a plain name is renamed by its import."""
    if isinstance(function, cst.Name):
        return
    device, name = old
    module = function.value if isinstance(function, cst.Attribute) else function
    if not tree.code(function).endswith(f".{device}.amp.{name}") or not isinstance(module, cst.Attribute):
        raise Refused(f"{tree.place(function)} reaches the old name through an alias of its module")
    case.edits(tree).rewrite(module.value, _without_device)


def _without_device(node: cst.CSTNode) -> cst.CSTNode:
    """`torch` of `torch.cuda`."""
    assert isinstance(node, cst.Attribute)
    return node.value


def _new_call(device: str, name: str) -> Callable[[cst.CSTNode], cst.CSTNode]:
    def make(old: cst.CSTNode) -> cst.CSTNode:
        assert isinstance(old, cst.Call)
        if name == "autocast":
            return with_first(with_keywords(old, OLD_AUTOCAST), f'"{device}"')
        if name == "GradScaler":
            return with_first(old, f'"{device}"')
        return with_argument(old, "device_type", f'"{device}"')

    return make


def _called_with_device(device: str) -> Callable[[cst.CSTNode], cst.CSTNode]:
    def make(old: cst.CSTNode) -> cst.CSTNode:
        assert isinstance(old, cst.BaseExpression)
        return cst.Call(old, [keyword("device_type", f'"{device}"')])

    return make
