from __future__ import annotations

import pandas as pd

from ampscope.diagnose.opflow import elements, segment_ops
from ampscope.trace.schema import OPS
from tests.diagnose.opkit import flow, op


def test_writers_are_the_last_before_and_views_write_nothing() -> None:
    first, again, view, reader = (
        op(0, "mul", (1,), (2,)),
        op(1, "add_", (2,), (2,)),
        op(2, "view", (2,), (2,)),
        op(3, "sum", (2, 9), (4,)),
    )
    segment = flow(first, again, view, reader)

    assert segment.writers(reader) == [again, None]
    assert segment.writers(again) == [first]


def test_ancestors_come_nearest_first() -> None:
    segment = flow(op(0, "exp", (1,), (2,)), op(1, "mul", (2,), (3,)), op(2, "add", (3, 2), (4,)))

    assert [(d, a.op) for d, a in segment.ancestors(segment.ops[2])] == [(1, "mul"), (1, "exp")]


def test_sources_look_through_copies() -> None:
    segment = flow(
        op(0, "sigmoid", (1,), (2,)),
        op(1, "_to_copy", (2,), (3,)),
        op(2, "squeeze", (3,), (3,)),
        op(3, "log", (3,), (4,)),
    )

    assert [s.op for s in segment.sources(segment.ops[3])] == ["sigmoid"]


def test_readers_end_where_the_value_is_overwritten() -> None:
    segment = flow(
        op(0, "mul", (1,), (2,)),
        op(1, "sum", (2,), (3,)),
        op(2, "fill_", (), (2,)),
        op(3, "mean", (2,), (4,)),
    )

    assert [r.op for r in segment.readers(segment.ops[0])] == ["sum"]


def test_a_census_is_followed_to_the_loss() -> None:
    bad = {"out_nonfinite": 1}
    exp, masked, total, seed = (
        op(0, "exp", (1,), (2,), **bad),
        op(1, "where", (2,), (3,)),
        op(2, "sum", (2,), (4,), in_nonfinite=1, **bad),
        op(3, "ones_like", (4,), (5,)),
    )

    assert flow(exp, masked, total, seed).reached(exp) == "loss"
    assert flow(exp, masked).reached(exp) is None


def test_backward_is_followed_to_the_optimizer() -> None:
    div = op(0, "div", (1,), (2,), phase="backward", out_nonfinite=1)
    step = op(1, "add_", (7, 2), (7,), phase="optimizer", in_nonfinite=1, out_nonfinite=1)
    relu = op(1, "threshold_backward", (2,), (3,), phase="backward", in_nonfinite=1)

    assert flow(div, step).reached(div) == "gradient"
    assert flow(div, relu).reached(div) is None


def test_the_watch_has_said_how_far_a_value_went() -> None:
    exp = op(0, "exp", (1,), (2,), out_nonfinite=1, reached="loss")

    assert flow(exp, level="watch").reached(exp) == "loss"


def test_rows_become_ops() -> None:
    row: dict[str, object] = {c.name: None for c in OPS.columns}
    row |= {"rank": 0, "segment": 5, "step": 4, "seq": 1, "op": "aten::log", "phase": "forward"}
    row |= {
        "in_dtypes": ["float16"],
        "out_dtypes": ["float16"],
        "tensor_ids": [3, 4],
        "scalars": [2.0],
        "out_nan": 1,
    }
    segment = segment_ops(pd.DataFrame([row]), "watch")

    assert segment is not None
    assert (segment.step, segment.watched, segment.graph) == (4, True, False)
    log = segment.ops[0]
    assert (log.op, log.ins, log.outs, log.scalars, log.out_nan, log.in_known) == (
        "log",
        (3,),
        (4,),
        (2.0,),
        1,
        False,
    )


def test_no_rows_no_segment() -> None:
    assert segment_ops(pd.DataFrame(columns=[c.name for c in OPS.columns]), "census") is None


def test_elements() -> None:
    assert [elements(s) for s in ("", "4", "3x0", "2x3x4")] == [1, 4, 0, 24]
