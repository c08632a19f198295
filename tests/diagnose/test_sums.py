from __future__ import annotations

from pathlib import Path

import pytest

from ampscope.diagnose.increments import writes_of
from ampscope.diagnose.policy import POLICY
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.sums import RunningSum, forecast, running_sums
from ampscope.trace.reader import open_trace
from tests.diagnose.handmade import Row, op, step, write


def added(segment: int, before: float, after: float, absorbed: int = 0) -> Row:
    """One addition in place to a 0-d bfloat16 tensor from outside of the step."""
    made = {
        "in_dtypes": ["bfloat16"] * 2, "in_shapes": ["", ""], "out_shapes": [""], "tensor_ids": [1, 2, 1],
        "in_amax": before, "out_amax": after, "in_zeros": 0, "absorbed": absorbed, "line": 5, "file": "a.py",
    }  # fmt: skip
    return {**op(segment, 0, "add_", "bfloat16", phase="other"), **made}


def read(path: Path, *rows: Row) -> list[RunningSum]:
    last = max(int(r["segment"]) for r in rows)
    tables = {"steps": [step(i, level="census") for i in range(last + 1)], "ops": list(rows)}
    with open_trace(write(path, tables)) as trace:
        return running_sums(writes_of(Signals(trace)), POLICY)


def test_a_sum_that_has_stopped(tmp_path: Path) -> None:
    (found,) = read(tmp_path, added(1, 0.0, 1.0), added(7, 7.0, 8.0), added(31, 256.0, 256.0, absorbed=1))
    assert found.top == 256.0
    assert found.lost == 1.0


@pytest.mark.parametrize(
    "rows",
    [
        (added(1, 3.0, 3.0, 1), added(7, 3.1, 3.1, 1), added(31, 3.0, 3.0, 1)),  # as large as ever
        (added(1, 1.0, 2.0), added(7, 60.0, 61.0), added(31, 5.0, 6.0)),  # starts anew
    ],
)
def test_what_does_not_grow_is_no_sum(tmp_path: Path, rows: tuple[Row, ...]) -> None:
    assert read(tmp_path, *rows) == []


def test_what_backward_reads_is_no_sum(tmp_path: Path) -> None:
    sizes = ((1, 0.0, 1.0), (7, 7.0, 8.0), (31, 31.0, 32.0))
    rows = [{**added(*size), "tensor_ids": [1, 2, 3], "op": "aten::add"} for size in sizes]
    back = op(31, 1, "mul", "bfloat16", phase="backward", tensor_ids=[3, 4])
    assert len(read(tmp_path / "a", *rows)) == 1
    assert read(tmp_path / "b", *rows, back) == []


def test_forecast_of_even_growth(tmp_path: Path) -> None:
    (found,) = read(tmp_path, added(1, 1.0, 2.0), added(7, 7.0, 8.0), added(31, 31.0, 32.0))
    ahead = forecast(found, 1000, POLICY)
    assert ahead is not None
    assert (ahead.increment, ahead.stop) == (1.0, 256.0)
    assert ahead.step == pytest.approx(256.0)
    assert forecast(found, 250, POLICY) is None


def test_no_forecast_when_the_sum_did_not_start_with_the_run(tmp_path: Path) -> None:
    (found,) = read(tmp_path, added(1, 0.0, 1.0), added(30, 3.0, 4.0), added(31, 5.0, 9.0))
    assert forecast(found, 10_000, POLICY) is None or found.top == 9.0
