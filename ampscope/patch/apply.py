"""Makes the collected edits of a file in one walk over its tree."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from ampscope.patch.edits import Edits, Insertion
from ampscope.patch.refused import Refused
from ampscope.patch.tree import STATEMENTS, Statement

Line = cst.SimpleStatementLine | cst.BaseCompoundStatement


def apply_edits(edits: Edits) -> str:
    """The source text of the tree with `edits` made. Raises Refused when it would not compile."""
    module = edits.tree.module.visit(_Apply(edits))
    assert isinstance(module, cst.Module)
    for name in sorted(edits.imports):
        module = _with_import(module, name)
    code = module.code
    try:
        compile(code, edits.tree.file.shown, "exec", dont_inherit=True)
    except SyntaxError as error:
        raise Refused(f"the edit of {edits.tree.file.shown} would not be valid Python") from error
    return code


class _Apply(cst.CSTTransformer):
    def __init__(self, edits: Edits) -> None:
        super().__init__()
        self.edits = edits
        self.emptied: set[cst.CSTNode] = set()
        wrapped = [s for _, group in edits.wrapped.values() for s in group]
        self.touched = {*edits.before, *edits.after, *edits.removed, *wrapped}

    def on_leave(self, original_node: cst.CSTNode, updated_node: cst.CSTNode) -> cst.CSTNode:  # type: ignore[override]
        if isinstance(original_node, cst.IndentedBlock | cst.Module | cst.SimpleStatementSuite):
            updated_node = self._block(original_node, updated_node)
        make = self.edits.replaced.get(original_node)
        return updated_node if make is None else make(updated_node)

    def _block(self, original: cst.CSTNode, updated: cst.CSTNode) -> cst.CSTNode:
        if isinstance(original, cst.SimpleStatementSuite):
            assert isinstance(updated, cst.SimpleStatementSuite)
            if not self.touched.intersection(original.body):
                return updated
            pairs: list[tuple[Statement, Line]] = list(
                zip(original.body, [_line(s) for s in updated.body], strict=True)
            )
            lines = self._lines(pairs) or [_line(cst.Pass())]
            if isinstance(lines[-1], cst.SimpleStatementLine):
                lines[-1] = lines[-1].with_changes(trailing_whitespace=updated.trailing_whitespace)
            return cst.IndentedBlock(lines)
        body = self._lines(self._pairs(original, updated))
        if not body and isinstance(original, cst.IndentedBlock):
            self.emptied.add(original)
            body = [_line(cst.Pass())]
        return updated.with_changes(body=body)

    def _pairs(self, original: cst.CSTNode, updated: cst.CSTNode) -> list[tuple[Statement | None, Line]]:
        """Every statement of a block with its edited line. Several on one line are taken apart only when one of
        them is touched; else they go together, with None."""
        pairs: list[tuple[Statement | None, Line]] = []
        for old, new in zip(original.body, updated.body, strict=True):  # type: ignore[attr-defined]
            if not isinstance(old, cst.SimpleStatementLine):
                gone = isinstance(old, cst.If) and old.orelse is None and old.body in self.emptied
                if not gone or any(isinstance(n, cst.Call) for n in _below(old.test)):
                    pairs.append((old, new))
            elif len(old.body) == 1:
                pairs.append((old.body[0], new))
            elif self.touched.intersection(old.body):
                parts: list[Line] = [_line(part) for part in new.body]
                parts[0] = parts[0].with_changes(leading_lines=new.leading_lines)
                parts[-1] = parts[-1].with_changes(trailing_whitespace=new.trailing_whitespace)
                pairs.extend(zip(old.body, parts, strict=True))
            else:
                pairs.append((None, new))
        return pairs

    def _lines(self, pairs: Sequence[tuple[Statement | None, Line]]) -> list[Line]:
        lines: list[Line] = []
        position = 0
        while position < len(pairs):
            statement, line = pairs[position]
            header, group = self.edits.wrapped.get(statement, ("", ())) if statement is not None else ("", ())
            if group:
                inner = self._lines_of(pairs[position : position + len(group)])
                lines.append(_wrap(header, inner))
                position += len(group)
                continue
            lines += self._lines_of([(statement, line)])
            position += 1
        return lines

    def _lines_of(self, pairs: Sequence[tuple[Statement | None, Line]]) -> list[Line]:
        lines: list[Line] = []
        for statement, line in pairs:
            if statement is None:
                lines.append(line)
                continue
            ahead = [new for item in self.edits.before.get(statement, ()) for new in self._new(item)]
            gone = statement in self.edits.removed
            if ahead:
                head, rest = _split_comments(line, whole=gone)
                ahead[0] = _with_leading(ahead[0], head)
                if gone and isinstance(line, cst.SimpleStatementLine):
                    ahead[-1] = ahead[-1].with_changes(trailing_whitespace=line.trailing_whitespace)
                line = line.with_changes(leading_lines=rest)
            lines += ahead
            if not gone:
                lines.append(line)
            lines += [new for item in self.edits.after.get(statement, ()) for new in self._new(item)]
        return lines

    def _new(self, item: Insertion) -> list[Line]:
        if isinstance(item.what, str):
            parsed = cst.parse_module(item.what + "\n", config=self.edits.tree.module.config_for_parsing)
            return list(parsed.body)
        moved = item.what.visit(self)
        assert isinstance(moved, STATEMENTS)
        if isinstance(moved, cst.BaseCompoundStatement):
            return [moved]
        holder = self.edits.tree.holder(item.what)
        line = _line(moved)
        if isinstance(holder, cst.SimpleStatementLine) and len(holder.body) == 1:
            line = line.with_changes(
                leading_lines=[e for e in holder.leading_lines if e.comment],
                trailing_whitespace=holder.trailing_whitespace,
            )
        return [line]


def _line(statement: cst.BaseSmallStatement) -> cst.SimpleStatementLine:
    return cst.SimpleStatementLine([statement.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)])


def _split_comments(line: Line, whole: bool) -> tuple[list[cst.EmptyLine], list[cst.EmptyLine]]:
    """The blank lines above a statement, which stay on top, and its comments, which stay with it."""
    leading = list(line.leading_lines)
    if whole:
        return leading, []
    count = next((i for i, e in enumerate(leading) if e.comment), len(leading))
    return leading[:count], leading[count:]


def _with_leading(line: Line, leading: Sequence[cst.EmptyLine]) -> Line:
    return line.with_changes(leading_lines=[*leading, *line.leading_lines])


def _wrap(header: str, lines: list[Line]) -> Line:
    statement = cst.parse_statement(f"{header}\n    pass\n")
    blank, rest = _split_comments(lines[0], whole=False)
    lines[0] = lines[0].with_changes(leading_lines=rest)
    assert isinstance(statement, cst.BaseCompoundStatement)
    return statement.with_changes(leading_lines=blank, body=cst.IndentedBlock(lines))


def _below(node: cst.CSTNode) -> list[cst.CSTNode]:
    found = [node]
    for one in found:
        found.extend(one.children)
    return found


def _with_import(module: cst.Module, name: str) -> cst.Module:
    """`import name`, before the first import but those from __future__, or after the docstring."""
    body = list(module.body)
    place = 0
    for index, line in enumerate(body):
        small = line.body[0] if isinstance(line, cst.SimpleStatementLine) else None
        future = isinstance(small, cst.ImportFrom) and isinstance(small.module, cst.Name)
        if future and small.module.value == "__future__":  # type: ignore[union-attr]
            place = index + 1
        elif index == 0 and isinstance(small, cst.Expr) and isinstance(small.value, cst.SimpleString):
            place = 1
        elif isinstance(small, cst.Import | cst.ImportFrom):
            place = index
            break
    statement = cst.parse_statement(f"import {name}\n")
    assert isinstance(statement, cst.SimpleStatementLine)
    if place < len(body):
        statement = statement.with_changes(leading_lines=body[place].leading_lines)
        body[place] = body[place].with_changes(leading_lines=[])
    return module.with_changes(body=[*body[:place], statement, *body[place:]])
