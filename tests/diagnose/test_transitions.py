from __future__ import annotations

from pathlib import Path
from typing import Any

from ampscope.diagnose.signals import Signals
from ampscope.diagnose.transitions import by_cause
from ampscope.trace.reader import open_trace
from tests.diagnose.handmade import op, step, write


def test_only_finite_to_nonfinite_and_no_masks(tmp_path: Path) -> None:
    bad: dict[str, Any] = {"dtype": "float16", "out_nonfinite": 2, "in_nonfinite": 0}
    rows = [
        op(0, 1, "masked_fill", **bad, scalars=[float("-inf")]),
        op(0, 2, "mm", **bad, module="m", shadow_nonfinite=0, in_amax=100.0),
        op(0, 3, "mm", **bad, module="m", shadow_nonfinite=2),
        op(0, 4, "add", dtype="float16", out_nonfinite=2, in_nonfinite=2),
        op(1, 5, "exp", **bad, file="t.py", line=3, function="f"),
    ]
    steps = [step(0, "skipped"), step(1, "stepped", loss=2.0)]
    with open_trace(write(tmp_path, {"ops": rows, "steps": steps})) as trace:
        found = Signals(trace).transitions
    assert [(t.op, t.segment) for t in found] == [("mm", 0), ("mm", 0), ("exp", 1)]
    assert [t.harmful for t in found] == [True, True, False]
    assert [t.float32_survives for t in found] == [True, False, None]
    assert found[0].in_half
    assert [len(group) for group in by_cause(found)] == [2, 1]


def test_a_nonfinite_loss_is_harm_even_when_the_step_was_taken(tmp_path: Path) -> None:
    rows = [op(0, 1, "sum", dtype="float16", out_nonfinite=1, in_nonfinite=0)]
    steps = [step(0, "stepped", loss=float("inf"))]
    with open_trace(write(tmp_path, {"ops": rows, "steps": steps})) as trace:
        assert Signals(trace).transitions[0].harmful
