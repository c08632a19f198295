"""Float32 round a named call: `.float()` on what it works on, or a region without autocast where that is undone."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

import libcst as cst

from ampscope.patch.casts import (
    MATRIX,
    REDUCING,
    as_float,
    calls_of,
    deep_leaf,
    is_float,
    is_number,
    operand,
    operations_of,
    operator_of,
    plain_op,
    strict_inputs,
)
from ampscope.patch.editor import editor
from ampscope.patch.names import binds, is_reference, last_name
from ampscope.patch.project import Case
from ampscope.patch.refused import Refused
from ampscope.patch.tree import Statement, Tree


@editor("AMP402", "AMP403", "AMP404", "AMP408", "AMP603")
def compute_in_float32(case: Case) -> None:
    """`.float()` on the operands of the op at the finding's line; a matmul gets a region without autocast."""
    op = plain_op(case.finding.where.op)
    if op in MATRIX:
        matmul_in_float32(case)
        return
    if case.finding.code == "AMP402" and case.finding.change.diff:
        raise Refused("the script itself casts to float16 on the way to it, and that cast has to go first")
    tree = case.tree
    statement = tree.plain_statement(case.line)
    if _stored_half(case) and op not in REDUCING:
        _there_and_back(case, tree, calls_of(tree, statement, op))
        return
    for one in (statement, *_others_that_overflow(case, tree, statement)):
        operands = _operands(tree, one, op)
        if case.finding.code == "AMP408":
            # What overflowed lies before the op that hid it.
            operands = [leaf for node in operands if (leaf := _origin(tree, node)) is not None]
        for node in dict.fromkeys(operands):
            case.edits(tree).rewrite(node, as_float)
        if operands and isinstance(one, cst.AugAssign):
            _out_of_place(case, tree, one)
    if not case.edits(tree):
        raise Refused(
            f"no call of {op or 'the op'} stands at {tree.place(statement)} that takes a float32 operand"
        )


def _origin(tree: Tree, node: cst.BaseExpression) -> cst.BaseExpression | None:
    """The leaf that an operand is computed from, through the one assignment of a variable of the function."""
    leaf = deep_leaf(tree, node)
    if isinstance(leaf, cst.Name):
        made = [
            statement
            for statement in tree.plain_statements(tree.function(leaf))
            if isinstance(statement, cst.Assign) and binds(statement) == {leaf.value}
        ]
        if len(made) == 1 and isinstance(made[0].value, cst.Call | cst.BinaryOperation):
            return deep_leaf(tree, made[0].value)
    return leaf


def _others_that_overflow(case: Case, tree: Tree, statement: Statement) -> list[Statement]:
    """Further statements of the same function whose call of the same op was seen to overflow."""
    where = case.finding.where
    found: dict[Statement, None] = {}
    for op, file, line in case.project.facts.overflows:
        if op == where.op and file == where.file and line != case.line:
            with contextlib.suppress(Refused):
                other = tree.plain_statement(line)
                if tree.function(other) is tree.function(statement) and other is not statement:
                    found[other] = None
    return list(found)


def _stored_half(case: Case) -> bool:
    return case.project.facts.autocast_dtype is None


def check_stored_half(case: Case, op: str) -> None:
    """In a model stored in half a float32 result meets half weights further on."""
    if _stored_half(case) and op not in REDUCING:
        raise Refused("the model is stored in half, and the layers after it would not take a float32 tensor")


def _there_and_back(case: Case, tree: Tree, calls: Sequence[cst.Call]) -> None:
    """In a model stored in half: `f(x.float()).to(x.dtype)`."""
    for call in calls:
        node = operand(tree, call)
        if node is None or not is_reference(node):
            continue
        dtype = cst.Arg(cst.Attribute(node, cst.Name("dtype")))
        case.edits(tree).rewrite(node, as_float)
        case.edits(tree).rewrite(call, _converted(dtype))
    if not case.edits(tree):
        raise Refused("the model is stored in half, and the layers after it would not take a float32 tensor")


def _converted(dtype: cst.Arg) -> Callable[[cst.CSTNode], cst.CSTNode]:
    def make(call: cst.CSTNode) -> cst.CSTNode:
        assert isinstance(call, cst.BaseExpression)
        return cst.Call(cst.Attribute(call, cst.Name("to")), [dtype])

    return make


def _operands(tree: Tree, statement: Statement, op: str) -> list[cst.BaseExpression]:
    nodes: list[cst.BaseExpression] = []
    for call in calls_of(tree, statement, op):
        nodes += [node for node in (operand(tree, call), *strict_inputs(call)) if node is not None]
    for operation in operations_of(tree, statement, op):
        leaf = operation.right if is_number(tree, operation.left) else operation.left
        if not any(leaf in tree.expressions(n) for n in nodes):
            nodes.append(leaf)
    if isinstance(statement, cst.AugAssign) and type(statement.operator).__name__ in _in_place(op):
        nodes.append(statement.value)
    return [node for node in nodes if not is_float(node) and not is_number(tree, node)]


def _in_place(op: str) -> tuple[str, ...]:
    """Names of the augmented operators of an op: AddAssign for Add."""
    return tuple(f"{kind.__name__}Assign" for kind in operator_of(op))


def _out_of_place(case: Case, tree: Tree, statement: cst.AugAssign) -> None:
    """`x += y` keeps the dtype of x: written as `x = x + y` it follows y."""
    if not isinstance(statement.target, cst.Name):
        raise Refused(f"the in-place operation at {tree.place(statement)} keeps the dtype of its target")
    kind: type[cst.BaseBinaryOp] = getattr(cst, type(statement.operator).__name__.removesuffix("Assign"))

    def make(old: cst.CSTNode) -> cst.CSTNode:
        assert isinstance(old, cst.AugAssign)
        total = cst.BinaryOperation(old.target, kind(), old.value)
        return cst.Assign([cst.AssignTarget(old.target)], total)

    case.edits(tree).rewrite(statement, make)


@editor("AMP401", "AMP412", "AMP418")
def matmul_in_float32(case: Case) -> None:
    """`with torch.autocast(device, enabled=False):` round the statement, its operands in float32."""
    tree = case.tree
    statement = tree.plain_statement(case.line)
    op = plain_op(case.finding.where.op)
    if _stored_half(case):
        if op in MATRIX or case.finding.code != "AMP418":
            raise Refused(
                "the model is stored in half: a float32 region needs its weights in float32 as well"
            )
        expressions = tree.expressions(statement)
        library = [n for n in expressions if isinstance(n, cst.Call) and n.args and _of_torch(tree, n)]
        _there_and_back(case, tree, library if len(library) == 1 else ())
        return
    operands = _matrix_operands(tree, statement, op) or _module_inputs(case, tree, statement)
    for node in operands:
        if not is_float(node):
            case.edits(tree).rewrite(node, as_float)
    if "torch" not in tree.global_names:
        case.edits(tree).need_import("torch")
    case.edits(tree).wrap([statement], f'with torch.autocast("{case.project.facts.device}", enabled=False):')


def _matrix_operands(tree: Tree, statement: Statement, op: str) -> list[cst.BaseExpression]:
    """The factors of the matrix products of a statement."""
    nodes: list[cst.BaseExpression] = []
    for operation in operations_of(tree, statement, op):
        nodes += [operation.left, operation.right]
    for call in calls_of(tree, statement, op):
        receiver = operand(tree, call)
        arguments = [arg.value for arg in call.args if arg.keyword is None and not arg.star]
        nodes += [n for n in dict.fromkeys([receiver, *arguments]) if n is not None and _tensor_like(tree, n)]
    return nodes


def _tensor_like(tree: Tree, node: cst.BaseExpression) -> bool:
    return not is_number(tree, node) and not isinstance(node, cst.BaseString | cst.Tuple | cst.List)


def _module_inputs(case: Case, tree: Tree, statement: Statement) -> Sequence[cst.BaseExpression]:
    """The positional arguments of the one call of a module: the finding's own where it is known by name."""
    module = (case.finding.where.module or "").rpartition(".")[2]
    calls = [
        n
        for n in tree.expressions(statement)
        if isinstance(n, cst.Call) and n.args and not _of_torch(tree, n)
    ]
    named = [c for c in calls if module and _callee(c) == module]
    chosen = named or ([] if module and not _is_root(case) else calls)
    if len(chosen) != 1:
        raise Refused(f"which call at {tree.place(statement)} is to run in float32 is not clear")
    return [
        a.value for a in chosen[0].args if a.keyword is None and not a.star and _tensor_like(tree, a.value)
    ]


def _of_torch(tree: Tree, call: cst.Call) -> bool:
    return any(name.startswith("torch.") for name in tree.names_of(call.func))


def _callee(call: cst.Call) -> str:
    """`wo` of `self.wo(x)`, `0` of `self.layers[0](x)`."""
    function = call.func
    if isinstance(function, cst.Subscript) and len(function.slice) == 1:
        index = function.slice[0].slice
        if isinstance(index, cst.Index) and isinstance(index.value, cst.Integer):
            return str(index.value.value)
    return last_name(function)


def _is_root(case: Case) -> bool:
    """Whether the finding's module is a root that the trace names by its class: `Linear#0`."""
    return "#" in (case.finding.where.module or "")


@editor("AMP409")
def rewrite_the_formula(case: Case) -> None:
    """Refused: where the digits were lost is not where the finding stands, and no dtype switch brings them back."""
    raise Refused("the difference has to be computed by another formula, or all that leads to it in float32")
