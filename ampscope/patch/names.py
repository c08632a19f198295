"""Which names a piece of syntax reads and binds. Pure functions over LibCST nodes; knows no file."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst


def reads(*nodes: cst.CSTNode) -> frozenset[str]:
    """Every name that is looked up in `nodes`; attributes and keywords of calls are no names."""
    collector = _Names()
    for node in nodes:
        node.visit(collector)
    return frozenset(collector.seen)


def binds(*nodes: cst.CSTNode) -> frozenset[str]:
    """Every name that `nodes` assign: targets of =, for, with, import, def, class and :=."""
    collector = _Names()
    for node in nodes:
        node.visit(collector)
    return frozenset(collector.bound)


def parameters(function: cst.FunctionDef | cst.Lambda) -> frozenset[str]:
    """The names of the parameters of a function."""
    collector = _Names()
    function.params.visit(collector)
    return frozenset(collector.bound)


def is_reference(node: cst.BaseExpression) -> bool:
    """A name, or attributes and constant items of one: what can be written twice and mean the same."""
    if isinstance(node, cst.Name):
        return True
    if isinstance(node, cst.Attribute):
        return is_reference(node.value)
    if isinstance(node, cst.Subscript):
        return is_reference(node.value) and all(_constant(element) for element in node.slice)
    return False


def root_name(node: cst.BaseExpression) -> str | None:
    """The name that a reference begins with; None for anything else."""
    while isinstance(node, cst.Attribute | cst.Subscript):
        node = node.value
    return node.value if isinstance(node, cst.Name) else None


def last_name(function: cst.BaseExpression) -> str:
    """`step` of `a.b.step` and of `step`; empty for what has no name."""
    if isinstance(function, cst.Attribute):
        return function.attr.value
    return function.value if isinstance(function, cst.Name) else ""


def targets(statement: cst.CSTNode) -> Sequence[cst.BaseExpression]:
    """What an assignment assigns to; empty for any other statement."""
    if isinstance(statement, cst.Assign):
        return [target.target for target in statement.targets]
    if isinstance(statement, cst.AnnAssign) and statement.value is not None:
        return [statement.target]
    return []


def _constant(element: cst.SubscriptElement) -> bool:
    index = element.slice
    return isinstance(index, cst.Index) and isinstance(index.value, cst.Integer | cst.SimpleString)


class _Names(cst.CSTVisitor):
    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.bound: set[str] = set()

    def visit_Name(self, node: cst.Name) -> None:
        self.seen.add(node.value)

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        node.value.visit(self)
        return False

    def visit_Arg(self, node: cst.Arg) -> bool:
        node.value.visit(self)
        return False

    def visit_AssignTarget(self, node: cst.AssignTarget) -> bool:
        return self._target(node.target)

    def visit_AnnAssign(self, node: cst.AnnAssign) -> bool:
        self._target(node.target)
        if node.value is not None:
            node.value.visit(self)
        return False

    def visit_AugAssign(self, node: cst.AugAssign) -> None:
        if isinstance(node.target, cst.Name):
            self.bound.add(node.target.value)

    def visit_NamedExpr(self, node: cst.NamedExpr) -> bool:
        self._target(node.target)
        node.value.visit(self)
        return False

    def visit_For(self, node: cst.For) -> bool:
        self._target(node.target)
        for part in (node.iter, node.body, node.orelse):
            if part is not None:
                part.visit(self)
        return False

    def visit_AsName(self, node: cst.AsName) -> bool:
        return self._target(node.name)

    def visit_Param(self, node: cst.Param) -> bool:
        self._bind(node.name.value)
        if node.default is not None:
            node.default.visit(self)
        return False

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        self._bind(node.name.value)
        return self._scope(node.params, node.body, *node.decorators)

    def visit_Lambda(self, node: cst.Lambda) -> bool:
        return self._scope(node.params, node.body)

    def visit_ClassDef(self, node: cst.ClassDef) -> bool:
        self._bind(node.name.value)
        return self._scope(node.body, *node.bases, *node.keywords, *node.decorators)

    def visit_ListComp(self, node: cst.ListComp) -> bool:
        return self._scope(node.for_in, node.elt)

    def visit_SetComp(self, node: cst.SetComp) -> bool:
        return self._scope(node.for_in, node.elt)

    def visit_GeneratorExp(self, node: cst.GeneratorExp) -> bool:
        return self._scope(node.for_in, node.elt)

    def visit_DictComp(self, node: cst.DictComp) -> bool:
        return self._scope(node.for_in, node.key, node.value)

    def visit_CompFor(self, node: cst.CompFor) -> bool:
        self._target(node.target)
        for part in (node.iter, *node.ifs, node.inner_for_in):
            if part is not None:
                part.visit(self)
        return False

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        if not isinstance(node.names, cst.ImportStar):
            for alias in node.names:
                alias.visit(self)
        return False

    def visit_ImportAlias(self, node: cst.ImportAlias) -> bool:
        if node.asname is not None:
            self._target(node.asname.name)
        else:
            name: cst.BaseExpression = node.name
            while isinstance(name, cst.Attribute):
                name = name.value
            self._target(name)
        return False

    def _scope(self, *parts: cst.CSTNode) -> bool:
        """Names of a scope of its own: what it binds is nobody's outside."""
        inner = _Names()
        for part in parts:
            part.visit(inner)
        self.seen |= inner.seen - inner.bound
        return False

    def _target(self, node: cst.CSTNode) -> bool:
        """Binds the names of an assignment target; what it indexes or takes attributes of is read."""
        if isinstance(node, cst.Name):
            self._bind(node.value)
        elif isinstance(node, cst.Tuple | cst.List):
            for element in node.elements:
                self._target(element.value)
        else:
            node.visit(self)
        return False

    def _bind(self, name: str) -> None:
        self.bound.add(name)
