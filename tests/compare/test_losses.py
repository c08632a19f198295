from __future__ import annotations

import math
from pathlib import Path

from ampscope.compare.losses import Curves, curves
from tests.compare.traces import losses, make_trace


def test_side_by_side_at_common_steps(tmp_path: Path) -> None:
    one = make_trace(tmp_path / "one", {"steps": losses(1.0, 2.0, 3.0)})
    two = make_trace(tmp_path / "two", {"steps": losses(1.0, math.nan)})
    with one, two:
        found = curves(one, two)
    assert found.steps == (0, 1)
    assert found.one == (1.0, 2.0)
    assert math.isnan(found.two[1])
    assert found.distance == 0.0


def test_distance_and_where_they_part() -> None:
    found = Curves((0, 4, 8), (2.0, 2.0, math.inf), (2.0, 1.0, math.inf))
    assert found.distance == 0.25
    assert found.first_apart(0.1) == 4
    assert found.first_apart(0.6) is None
    assert found.at(4) == (2.0, 1.0)
    assert Curves().distance is None
