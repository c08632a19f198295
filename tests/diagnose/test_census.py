from __future__ import annotations

from pathlib import Path

from ampscope.diagnose.census import MOST_SEGMENTS, censuses
from ampscope.diagnose.signals import Signals
from ampscope.trace.reader import open_trace
from tests.diagnose.handmade import op, step, write


def test_the_last_censuses_that_hold_half_results(tmp_path: Path) -> None:
    n = MOST_SEGMENTS + 3
    levels = {i: "watch" if i == n - 1 else "census" for i in range(n)}
    ops = [
        op(i, 0, "mm", "float32" if i == n - 2 else "float16", absorbed=i, host_s=0.5, out_bytes=8)
        for i in range(n)
    ]
    tables = {
        "steps": [step(i, level=levels[i]) for i in range(n)],
        "ops": [*ops, op(3, 1, "add", "float16")],
    }
    with open_trace(write(tmp_path, tables)) as trace:
        s = Signals(trace)
        found = censuses(s)
        assert all(a is b for a, b in zip(censuses(s), found, strict=True))
    assert [c.flow.segment for c in found] == list(range(1, n - 2))
    third = found[2]
    assert third.absorbed == {0: 3}
    assert (third.seconds, third.bytes) == ({0: 0.5, 1: 0.0}, {0: 8.0, 1: 0.0})


def test_without_a_census(tmp_path: Path) -> None:
    with open_trace(write(tmp_path, {"steps": [step(0)]})) as trace:
        assert censuses(Signals(trace)) == ()
