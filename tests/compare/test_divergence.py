from __future__ import annotations

from pathlib import Path

import pytest

from ampscope.compare.divergence import COMMON, Joined, common_steps, join
from tests.compare.traces import Row, make_trace, tensor

HALF: list[Row] = [{"autocast_dtype": "float16", "outcome": "stepped"}]


def joined(tmp_path: Path, one: list[Row], two: list[Row], steps: list[Row] = HALF) -> Joined:
    a = make_trace(tmp_path / "one", {"tensors": one, "steps": steps})
    b = make_trace(tmp_path / "two", {"tensors": two, "steps": steps})
    with a, b:
        return join(a, b)


def test_rounding_is_no_divergence(tmp_path: Path) -> None:
    found = joined(tmp_path, [tensor("a", 0, 1.0)], [tensor("a", 0, 1.005)])
    assert (found.first, found.more, found.tensors, found.steps) == (None, (), 1, 1)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"sumsq": 121.0}, "root mean square differs by 9.09 %"),
        ({"amax": 4.0}, "largest element differs by 25 %"),
        ({"nan": 1}, "NaN or inf in the second run only"),
        ({"zeros": 40}, "exact zeros 0 % and 40 %"),
    ],
)
def test_what_differs(tmp_path: Path, change: Row, why: str) -> None:
    found = joined(tmp_path, [tensor("a", 3, 1.0)], [{**tensor("a", 3, 1.0), **change}])
    assert found.first is not None
    assert (found.first.name, found.first.step, found.first.why) == ("a", 3, why)


def test_the_first_in_the_order_of_the_computation(tmp_path: Path) -> None:
    def rows(factor: float) -> list[Row]:
        return [
            tensor("late", 2, factor),
            tensor("w", 1, factor, role="weight", order=0),
            tensor("g", 1, factor, role="grad", order=0),
            tensor("two", 1, factor, order=2),
            tensor("one", 1, factor, order=1),
            tensor("same", 0, 1.0),
        ]

    found = joined(tmp_path, rows(1.0), [*rows(2.0), tensor("new", 1, 1.0)])
    assert found.first is not None
    assert found.first.name == "one"
    assert [d.name for d in found.more] == ["two", "g", "w"]
    assert (found.tensors, found.only_one, found.only_two) == (6, 0, 1)


def test_the_loss_scale_is_taken_out(tmp_path: Path) -> None:
    one = tensor("g", 0, 1024.0, role="grad", scale=1024.0, stage="pre_unscale")
    two = tensor("g", 0, 1.0, role="grad", scale=1.0, stage="pre_clip")
    clipped = tensor("g", 0, 0.1, role="grad", scale=1.0, stage="post_clip")
    assert joined(tmp_path, [one], [two, clipped]).first is None


def test_runs_in_float32_are_held_to_float32(tmp_path: Path) -> None:
    full: list[Row] = [{"outcome": "stepped"}]
    found = joined(tmp_path, [tensor("a", 0, 1.0)], [tensor("a", 0, 1.00001)], full)
    assert found.first is not None
    assert found.tolerance == 16 * 2.0**-24


def test_many_steps_are_thinned_out_and_the_first_kept(tmp_path: Path) -> None:
    rows = [tensor("a", step, 1.0) for step in range(400)]
    with (
        make_trace(tmp_path / "one", {"tensors": rows}) as a,
        make_trace(tmp_path / "two", {"tensors": rows}) as b,
    ):
        at = common_steps(a, b)
    assert len(at) <= COMMON
    assert at[:32] == list(range(32))
    assert at[-1] > 380


def test_nothing_in_common(tmp_path: Path) -> None:
    found = joined(tmp_path, [tensor("a", 0, 1.0)], [tensor("a", 1, 1.0)])
    assert (found.first, found.steps, found.tensors) == (None, 0, 0)
