"""One source file as a tree with positions: finds calls, statements and their surroundings. Changes nothing.

A statement is a small one (`a = 1`, also where several share a line) or a compound one (`if`, `with`, `for`,
`def`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

import libcst as cst
from libcst.metadata import (
    CodeRange,
    MetadataWrapper,
    ParentNodeProvider,
    PositionProvider,
    QualifiedNameProvider,
)

from ampscope.patch.names import binds, last_name, parameters
from ampscope.patch.refused import Refused
from ampscope.patch.sources import SourceFile

Statement = cst.BaseSmallStatement | cst.BaseCompoundStatement
Scope = cst.FunctionDef | cst.Module
N = TypeVar("N", bound=cst.CSTNode)

STATEMENTS = (cst.BaseSmallStatement, cst.BaseCompoundStatement)
LOOPS = (cst.For, cst.While)


class Tree:
    """Raises Refused for a file that is not valid Python of this version."""

    def __init__(self, file: SourceFile) -> None:
        self.file = file
        try:
            # The parser gives every node once, which is all that a copy would ensure.
            self._wrapper = MetadataWrapper(cst.parse_module(file.data), unsafe_skip_copy=True)
        except (cst.ParserSyntaxError, SyntaxError, UnicodeDecodeError, LookupError) as error:
            raise Refused(f"{file.shown} cannot be parsed") from error
        self.module = self._wrapper.module
        self._positions = self._wrapper.resolve(PositionProvider)
        self._parents = self._wrapper.resolve(ParentNodeProvider)

    # -- text and places -----------------------------------------------------------------------------

    def code(self, node: cst.CSTNode) -> str:
        """The source text of a node, without the spaces and comments round it."""
        return self.module.code_for_node(node).strip()

    def span(self, node: cst.CSTNode) -> CodeRange:
        return self._positions[node]

    def line(self, node: cst.CSTNode) -> int:
        """First line of a node, from 1."""
        return int(self.span(node).start.line)

    def place(self, node: cst.CSTNode) -> str:
        """`train.py:41`"""
        return f"{self.file.path.name}:{self.line(node)}"

    # -- what stands where ---------------------------------------------------------------------------

    def nodes(self, kind: type[N], within: cst.CSTNode | None = None) -> list[N]:
        """Every node of a kind in `within` (the whole file), itself among them, in source order."""
        order, spans = self._in_order
        first, end = spans[within if within is not None else self.module]
        return [node for node in order[first:end] if isinstance(node, kind)]

    @cached_property
    def _in_order(self) -> tuple[list[cst.CSTNode], dict[cst.CSTNode, tuple[int, int]]]:
        """All nodes, each before its parts, and where those of each begin and end."""
        order: list[cst.CSTNode] = []
        spans: dict[cst.CSTNode, tuple[int, int]] = {}
        todo: list[tuple[cst.CSTNode, int]] = [(self.module, -1)]
        while todo:
            node, first = todo.pop()
            if first >= 0:
                spans[node] = (first, len(order))
                continue
            todo.append((node, len(order)))
            order.append(node)
            todo.extend((child, -1) for child in reversed(node.children))
        return order, spans

    def calls(self, line: int | None, *names: str) -> list[cst.Call]:
        """The calls that lie on `line` (all of the file if None) and whose function is so named (any name if
        none is given); those that begin nearest to the line first."""
        found = [
            call
            for call in self._calls
            if (line is None or self._covers(call, line)) and (not names or last_name(call.func) in names)
        ]
        return sorted(found, key=lambda call: abs(self.line(call) - line)) if line is not None else found

    @cached_property
    def _calls(self) -> list[cst.Call]:
        return self.nodes(cst.Call)

    def _covers(self, node: cst.CSTNode, line: int) -> bool:
        span = self.span(node)
        return bool(span.start.line <= line <= span.end.line)

    def names_of(self, node: cst.CSTNode) -> frozenset[str]:
        """The dotted names that an expression can stand for, aliases of imports resolved."""
        found = self._qualified.get(node)
        found = found() if callable(found) else found
        return frozenset(name.name for name in found or ())

    @cached_property
    def _qualified(self) -> Mapping[cst.CSTNode, Any]:
        # The sets are computed when they are called for.
        return self._wrapper.resolve(QualifiedNameProvider)

    # -- surroundings --------------------------------------------------------------------------------

    def ancestors(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """Parents of a node, innermost first, the module last."""
        while node in self._parents:
            node = self._parents[node]
            yield node

    def statement(self, node: cst.CSTNode) -> Statement:
        """The innermost statement that holds a node, which may be the node itself."""
        for one in (node, *self.ancestors(node)):
            if isinstance(one, STATEMENTS):
                return one
        raise Refused(f"{self.file.shown} holds no statement there")

    def plain_statement(self, line: int) -> cst.BaseSmallStatement:
        """The small statement on a line. Raises Refused where the head of a loop or a branch stands there."""
        found = [s for s in self.plain_statements() if self._covers(s, line)]
        if not found:
            raise Refused(f"{self.file.path.name}:{line} is no plain statement")
        return found[-1]

    def plain_statements(self, scope: Scope | None = None) -> list[cst.BaseSmallStatement]:
        """The small statements of the file, or of one function without those inside of it, in source order."""
        found = self.nodes(cst.BaseSmallStatement, scope)  # type: ignore[type-abstract]
        return found if scope is None else [s for s in found if self.function(s) is scope]

    def expressions(self, node: cst.CSTNode) -> list[cst.BaseExpression]:
        """The expressions in a statement, without those of the statements inside it; or those in an expression,
        itself among them."""
        statement = self.statement(node)
        found = self.nodes(cst.BaseExpression, node)  # type: ignore[type-abstract]
        return [n for n in found if self.statement(n) is statement]

    def function(self, node: cst.CSTNode) -> Scope:
        """The function whose body holds a node, or the module."""
        for one in self.ancestors(node):
            if isinstance(one, cst.FunctionDef | cst.Module):
                return one
        return self.module

    def class_of(self, node: cst.CSTNode) -> cst.ClassDef | None:
        return next((one for one in self.ancestors(node) if isinstance(one, cst.ClassDef)), None)

    def holder(self, statement: Statement) -> cst.CSTNode:
        """The line that a small statement stands on; a compound statement itself."""
        return self._parents[statement] if isinstance(statement, cst.BaseSmallStatement) else statement

    def block(self, statement: Statement) -> cst.CSTNode:
        """The block that directly holds a statement."""
        holder = self.holder(statement)
        return holder if isinstance(holder, cst.SimpleStatementSuite) else self._parents[holder]

    def siblings(self, statement: Statement) -> list[Statement]:
        """All statements of the same block, in order, the statement among them."""
        return statements_of(self.block(statement))

    def following(self, statement: Statement) -> list[Statement]:
        """The later statements of the same block."""
        siblings = self.siblings(statement)
        return siblings[siblings.index(statement) + 1 :]

    def in_block_of(self, inner: cst.CSTNode, statement: Statement) -> Statement | None:
        """The statement of the block of `statement` that holds `inner`, or None."""
        block = self.block(statement)
        for one in (inner, *self.ancestors(inner)):
            if isinstance(one, STATEMENTS) and self.block(one) is block:
                return one
        return None

    def loop(self, node: cst.CSTNode, outermost: bool = False) -> cst.For | cst.While | None:
        """The innermost or outermost loop round a node within its function."""
        found = None
        for one in self.ancestors(node):
            if isinstance(one, cst.FunctionDef):
                break
            if isinstance(one, LOOPS):
                if not outermost:
                    return one
                found = one
        return found

    # -- names ---------------------------------------------------------------------------------------

    def local_names(self, scope: Scope) -> frozenset[str]:
        """Names that belong to a function: its parameters and what its body binds."""
        if isinstance(scope, cst.Module):
            return self.global_names
        declared = {n.name.value for g in self.nodes(cst.Global, scope.body) for n in g.names}
        return (binds(scope.body) | parameters(scope)) - declared

    @cached_property
    def global_names(self) -> frozenset[str]:
        declared = {n.name.value for g in self.nodes(cst.Global) for n in g.names}
        return binds(*self.module.body) | declared


def statements_of(block: cst.CSTNode) -> list[Statement]:
    """The statements directly in a block, several on one line one by one."""
    body: Sequence[cst.CSTNode] = getattr(block, "body", ())
    found: list[Statement] = []
    for one in body:
        if isinstance(one, cst.SimpleStatementLine):
            found.extend(one.body)
        elif isinstance(one, STATEMENTS):
            found.append(one)
    return found


def identifiers(tree: Tree) -> frozenset[str]:
    """Every identifier that occurs in a file: a new name must be none of them."""
    return frozenset(name.value for name in tree.nodes(cst.Name))
