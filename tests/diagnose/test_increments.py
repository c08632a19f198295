from __future__ import annotations

from pathlib import Path

import pytest

from ampscope.diagnose.increments import ULP, Write, groups, lost_query, lost_share, writes_of
from ampscope.diagnose.signals import Signals
from ampscope.trace.reader import open_trace
from tests.diagnose.handmade import Row, op, step, write

OLD, NEW = 1, 2


def half(seq: int, name: str, ids: list[int], arguments: int, **columns: object) -> Row:
    """An op on bfloat16 tensors of 8 elements; `ids` are those of its arguments and then of its results."""
    made = {
        "in_dtypes": ["bfloat16"] * arguments, "in_shapes": ["8"] * arguments, "out_shapes": ["8"],
        "tensor_ids": ids, "file": "a.py", "line": 7, "function": "f", "in_zeros": 0, "phase": "other",
    }  # fmt: skip
    return {**op(1, seq, name, "bfloat16"), **made, **columns}


def read(path: Path, *rows: Row) -> tuple[Write, ...]:
    tables = {"steps": [step(i, level="census") for i in range(3)], "ops": list(rows)}
    with open_trace(write(path, tables)) as trace:
        return writes_of(Signals(trace))


def test_lerp_is_an_average(tmp_path: Path) -> None:
    (found,) = read(tmp_path, half(0, "lerp_", [OLD, NEW, OLD], 2, scalars=[0.001], absorbed=6))
    assert (found.weight, found.key, found.absorbed, found.asked) == (0.001, OLD, 6, 8)
    assert found.rounds_once
    assert not found.repaired
    assert lost_share([found]) == 0.75


def test_decay_and_increment_are_one_expression(tmp_path: Path) -> None:
    (found,) = read(
        tmp_path,
        half(0, "mul_", [OLD, OLD], 1, scalars=[0.99], absorbed=0),
        half(1, "add_", [OLD, NEW, OLD], 2, scalars=[0.01], absorbed=8),
    )
    assert found.weight == pytest.approx(0.01)
    assert not found.rounds_once


def test_an_average_that_replaces_the_old_tensor(tmp_path: Path) -> None:
    (found,) = read(
        tmp_path,
        half(0, "mul", [OLD, 3], 1, scalars=[0.9]),
        half(1, "mul", [NEW, 4], 1, scalars=[0.1]),
        half(2, "add", [3, 4, 5], 2, absorbed=1),
    )
    assert found.key == OLD
    assert found.weight == pytest.approx(0.1)


def test_a_sum_goes_on_from_itself(tmp_path: Path) -> None:
    first, second = read(
        tmp_path,
        half(0, "add", [OLD, NEW, 3], 2, absorbed=0),
        half(1, "add", [3, NEW, 4], 2, absorbed=8),
    )
    assert (first.weight, first.chained, second.chained) == (None, False, True)
    assert len(groups([first, second])) == 1


def test_sums_of_what_the_step_made_are_none(tmp_path: Path) -> None:
    rows = [
        half(0, "relu", [OLD, 3], 1),
        half(1, "tanh", [OLD, 4], 1),
        half(2, "add", [3, 4, 5], 2, absorbed=8),
    ]
    assert read(tmp_path, *rows) == ()


def test_the_optimizer_and_backward_are_left_out(tmp_path: Path) -> None:
    rows = [
        half(0, "add_", [OLD, NEW, OLD], 2, scalars=[-0.1], absorbed=8, phase="optimizer"),
        half(1, "add", [OLD, NEW, 3], 2, absorbed=8, phase="backward"),
    ]
    assert read(tmp_path, *rows) == ()


def test_what_is_lost_may_be_carried(tmp_path: Path) -> None:
    (found,) = read(
        tmp_path,
        half(0, "clone", [OLD, 3], 1),
        half(1, "add_", [OLD, NEW, OLD], 2, absorbed=8),
        half(2, "sub", [OLD, 3, 4], 2),
    )[:1]
    assert found.repaired


def test_rounding_may_be_random(tmp_path: Path) -> None:
    (found,) = read(
        tmp_path,
        half(0, "_to_copy", [OLD, 3], 1, out_dtypes=["float32"]),
        op(1, 1, "mul", "float32", phase="other", tensor_ids=[3, 4], scalars=[0.99], function="f"),
        op(
            1,
            2,
            "add",
            "float32",
            phase="other",
            tensor_ids=[4, 9, 5],
            in_dtypes=["float32"] * 2,
            scalars=[0.01],
            function="f",
        ),
        op(1, 3, "bitwise_and", "float32", phase="other", tensor_ids=[5, 6], function="f"),
        half(4, "copy_", [OLD, 6, OLD], 2, in_dtypes=["bfloat16", "float32"]),
    )
    assert found.repaired


def test_the_query_gives_the_share(tmp_path: Path) -> None:
    rows = [half(0, "lerp_", [OLD, NEW, OLD], 2, scalars=[0.001], absorbed=6, in_zeros=2)]
    tables = {"steps": [step(i, level="census") for i in range(3)], "ops": rows}
    with open_trace(write(tmp_path, tables)) as trace:
        (found,) = writes_of(Signals(trace))
        assert trace.sql(lost_query(found)).iat[0, 0] == lost_share([found]) == 1.0


def test_spacing() -> None:
    assert ULP == {"float16": 2.0**-10, "bfloat16": 2.0**-7}
