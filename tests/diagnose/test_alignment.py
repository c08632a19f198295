from __future__ import annotations

from ampscope.diagnose.alignment import named_like
from tests.diagnose.opkit import flow, op


def test_names_come_from_the_op_in_the_same_order() -> None:
    census = flow(
        op(0, "randn", (), (1,)),
        op(1, "addmm", (1,), (2,), module="a", out_shapes=("8x4",)),
        op(2, "addmm", (2,), (3,), module="b", out_shapes=("8x4",)),
        op(3, "add", (3,), (4,), scalars=(1e-8,), out_shapes=("8x4",)),
    )
    unknown = {"file": None, "line": None, "function": None}
    graph = flow(
        op(0, "addmm", (1,), (2,), out_shapes=("3x4",), **unknown),
        op(1, "addmm", (2,), (3,), out_shapes=("3x4",), **unknown),
        op(2, "add", (3,), (4,), out_shapes=("3x4",), out_zeros=5, **unknown),
        level="range",
    )
    named = named_like(graph, census)

    assert [(o.module, o.line) for o in named.ops] == [("a", 1), ("b", 2), (None, 3)]
    assert named.ops[2].scalars == (1e-8,)
    assert named.ops[2].out_zeros == 5


def test_another_program_names_nothing() -> None:
    graph = flow(op(0, "exp", (1,), (2,), file=None, line=None), level="pulse")

    assert named_like(graph, flow(op(7, "log", (1,), (2,)))).ops == graph.ops
    assert named_like(graph, flow(op(7, "exp", (1,), (2,), out_dtypes=("float32",)))).ops == graph.ops
