"""Edits of one file, collected first and applied together: statements inserted, moved, wrapped, expressions replaced.

What is not edited keeps every byte. Two sets of edits that touch the same place do not merge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import libcst as cst

from ampscope.patch.refused import Refused
from ampscope.patch.tree import Statement, Tree

Make = Callable[[cst.CSTNode], cst.CSTNode]
"""Gives the new node for the old one, whose own parts are edited already."""


@dataclass(frozen=True)
class Insertion:
    """What to put before or after a statement: source text, or a statement of the file that moves there.

    Of insertions with one `key`, which several findings may ask for, only the first or the last in the file
    is made.
    """

    what: str | Statement
    key: str = ""
    keep: Literal["first", "last"] = "first"


@dataclass
class Edits:
    """The edits of `tree`. Every method may be called in any order; `merge` and `code` come last."""

    tree: Tree
    before: dict[Statement, list[Insertion]] = field(default_factory=dict)
    after: dict[Statement, list[Insertion]] = field(default_factory=dict)
    removed: set[Statement] = field(default_factory=set)
    replaced: dict[cst.CSTNode, Make] = field(default_factory=dict)
    wrapped: dict[Statement, tuple[str, tuple[Statement, ...]]] = field(default_factory=dict)
    imports: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.before or self.after or self.removed or self.replaced or self.wrapped)

    def insert_before(
        self, statement: Statement, code: str, key: str = "", keep: Literal["first", "last"] = "first"
    ) -> None:
        self.before.setdefault(statement, []).append(Insertion(code, key, keep))

    def insert_after(
        self, statement: Statement, code: str, key: str = "", keep: Literal["first", "last"] = "first"
    ) -> None:
        self.after.setdefault(statement, []).append(Insertion(code, key, keep))

    def move_before(self, statements: Sequence[Statement], target: Statement) -> None:
        self.removed.update(statements)
        self.before.setdefault(target, []).extend(Insertion(s) for s in statements)

    def move_after(self, statements: Sequence[Statement], target: Statement) -> None:
        self.removed.update(statements)
        self.after.setdefault(target, []).extend(Insertion(s) for s in statements)

    def remove(self, statement: Statement) -> None:
        self.removed.add(statement)

    def replace(self, node: cst.CSTNode, code: str) -> None:
        """Put the expression `code` in place of the expression `node`."""
        try:
            new = cst.parse_expression(code, config=self.tree.module.config_for_parsing)
        except cst.ParserSyntaxError as error:
            raise Refused(f"{self.tree.place(node)} is laid out over several lines") from error
        self.rewrite(node, lambda old: new)

    def rewrite(self, node: cst.CSTNode, make: Make) -> None:
        if node in self.replaced:
            raise Refused(f"{self.tree.place(node)} is edited already")
        self.replaced[node] = make

    def replace_statement(self, statement: Statement, code: str) -> None:
        """Put the lines `code` in place of a statement; its comments stay."""
        self.insert_before(statement, code)
        self.remove(statement)

    def wrap(self, statements: Sequence[Statement], header: str) -> None:
        """Put neighbouring statements of one block under `header`, for example `with f():`."""
        self.wrapped[statements[0]] = (header, tuple(statements))

    def need_import(self, module: str) -> None:
        self.imports.add(module)

    def merge(self, other: Edits) -> None:
        """Take in `other`, edits of the same tree. Raises Refused where both touch one place."""
        self._check(other)
        for mine, theirs in ((self.before, other.before), (self.after, other.after)):
            for statement, items in theirs.items():
                known = mine.setdefault(statement, [])
                known += [i for i in items if i not in known]
        self.removed |= other.removed
        self.replaced.update(other.replaced)
        self.wrapped.update(other.wrapped)
        self.imports |= other.imports
        self._one_per_key()

    def _check(self, other: Edits) -> None:
        # One insertion of the same text at the same place is one wish, also when it replaces that statement.
        same = {
            s
            for s in self.removed & other.removed
            if self.before.get(s) == other.before.get(s) and s in self.before
        }
        moved = (self.removed & other.removed) - same
        anchors = {*other.before, *other.after} - other.removed
        own_anchors = {*self.before, *self.after} - self.removed
        clash = [
            *moved,
            *(self.removed & anchors),
            *(other.removed & own_anchors),
            *(set(self.replaced) & set(other.replaced)),
            *(set(self.wrapped) & set(other.wrapped)),
        ]
        if clash:
            raise Refused(
                f"{self.tree.place(clash[0])} is changed by another fix: apply that first, then record again"
            )

    def _one_per_key(self) -> None:
        places = [
            (self.tree.line(statement), i, side, statement, item)
            for i, side in enumerate((self.before, self.after))
            for statement, items in side.items()
            for item in items
            if item.key
        ]
        for key in {item.key for *_, item in places}:
            wanted = sorted((p for p in places if p[4].key == key), key=lambda p: p[:2])
            kept = wanted[0] if wanted[0][4].keep == "first" else wanted[-1]
            for place in wanted:
                if place is not kept:
                    place[2][place[3]].remove(place[4])

    def code(self) -> str:
        """The source text with all edits made. Raises Refused when that is not valid Python."""
        from ampscope.patch.apply import apply_edits

        return apply_edits(self)
