from __future__ import annotations

from pathlib import Path

import pytest

from ampscope.diagnose.pace import Pace, compared, paces_of, plain_steps
from ampscope.diagnose.signals import Signals
from ampscope.trace.reader import open_trace
from tests.diagnose.handmade import step, write


def test_only_plain_steps_count(tmp_path: Path) -> None:
    rows = [step(i, duration_s=9.0) for i in range(3)]
    rows += [step(3, duration_s=1.0, level="census"), step(4, "abandoned", duration_s=1.0)]
    rows += [
        step(5, duration_s=2.0, own_s=0.5, data_s=1.0),
        step(6, "skipped", duration_s=4.0, own_s=0.0, data_s=1.0),
    ]
    with open_trace(write(tmp_path, {"steps": rows})) as trace:
        s = Signals(trace)
        kept = plain_steps(s)
        assert kept["segment"].tolist() == [5, 6]
        (pace,) = paces_of(s)
    assert (pace.opt, pace.dtype, pace.steps) == ("SGD#0", None, 2)
    assert pace.duration_s == pytest.approx(2.75)


def test_steps_of_one_optimizer_are_compared() -> None:
    full, low, other = Pace("A", None, 20, 1.0), Pace("A", "float16", 20, 2.0), Pace("B", "float16", 20, 3.0)
    assert compared((full, low, other), 10) == (full, low)
    assert compared((full, other), 10) is None
    assert compared((full, low), 30) is None
