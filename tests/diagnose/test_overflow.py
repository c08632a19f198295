from __future__ import annotations

from pathlib import Path
from typing import Any

from ampscope.diagnose.overflow import (
    forward_overflows,
    made_phrase,
    no_census,
    overflow_evidence,
    place_phrase,
    steps_hit,
    where_of,
)
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.transitions import MATMUL
from ampscope.trace.reader import open_trace
from tests.diagnose.handmade import Row, op, step, write

BAD: dict[str, Any] = {
    "dtype": "float16", "out_nonfinite": 2, "in_nonfinite": 0, "out_nan": 0, "reached": "loss",
}  # fmt: skip


def test_harmful_forward_overflow_of_half_that_float32_survives(tmp_path: Path) -> None:
    rows: list[Row] = [
        op(
            0,
            1,
            "mm",
            **BAD,
            module="it's",
            shadow_nonfinite=0,
            shadow_amax=1e5,
            in_amax=300.0,
            file="t.py",
            line=3,
        ),
        op(0, 2, "mm", **BAD, module="b", shadow_nonfinite=2),
        op(0, 3, "mm", **BAD, module="c", phase="backward"),
        op(0, 4, "mm", **{**BAD, "dtype": "float32"}, module="d"),
        op(0, 5, "exp", **BAD, module="e"),
        op(1, 6, "mm", **BAD, module="f"),
        op(2, 7, "mm", **BAD, module="it's", phase="recompute", file="t.py", line=3),
    ]
    steps = [step(0, "skipped"), step(1, "stepped"), step(2, "skipped")]
    with open_trace(write(tmp_path, {"ops": rows, "steps": steps})) as trace:
        s = Signals(trace)
        (group,) = forward_overflows(s, MATMUL)
        assert no_census(s) is None
        evidence = overflow_evidence(s, group)
    where = where_of(group)
    assert (where.module, where.op, where.file, where.line, where.steps) == (
        "it's",
        "aten::mm",
        "t.py",
        3,
        (0, 2),
    )
    assert steps_hit([group]) == {0, 2}
    assert place_phrase(group) == " in it's"
    assert made_phrase(group) == (
        "its inputs are finite (at most 300), its float16 output holds inf; in float32 it reaches 100000, beyond 65504"
    )
    assert [e.value for e in evidence if e is not None] == [2, 300.0, 100000.0, 0]


def test_without_a_census_it_cannot_be_judged(tmp_path: Path) -> None:
    with open_trace(write(tmp_path, {})) as trace:
        assert no_census(Signals(trace)) is not None
