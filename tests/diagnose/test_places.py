from __future__ import annotations

from ampscope.diagnose.places import at, by_place, steps_of
from tests.diagnose.test_windows import stream


def test_grouping_keeps_the_order_of_first_occurrence() -> None:
    calls = stream(
        ("backward", {"file": "b.py", "line": 2, "step": 4}),
        ("backward", {"file": "a.py", "line": 1, "step": 1}),
        ("backward", {"file": "b.py", "line": 2, "step": 7}),
        ("backward", {"step": -1}),
    )
    groups = by_place(calls, lambda c: c)
    assert [place for place, _ in groups] == [("b.py", 2), ("a.py", 1), (None, None)]
    where = at(groups[0][1], tensor="w")
    assert (where.file, where.line, where.tensor, where.steps) == ("b.py", 2, "w", (4, 7))
    assert steps_of(groups[2][1]) is None
