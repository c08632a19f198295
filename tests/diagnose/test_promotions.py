from __future__ import annotations

from pathlib import Path

import pytest

from ampscope.diagnose.census import censuses
from ampscope.diagnose.promotions import Promotion, promotions_of
from ampscope.diagnose.signals import Signals
from ampscope.trace.reader import open_trace
from tests.diagnose.handmade import Row, op, step, write


def mixed(seq: int, shapes: list[str], dtypes: list[str], name: str = "add") -> Row:
    made = {
        "in_dtypes": dtypes,
        "in_shapes": shapes,
        "out_dtypes": ["float32"],
        "out_shapes": ["8x4"],
        "out_bytes": 128,
    }
    return {**op(1, seq, name), **made, "tensor_ids": [1, 2, 3]}


def read(path: Path, *rows: Row) -> tuple[Promotion, ...]:
    product = op(1, 99, "mm", "float16", out_bytes=64, tensor_ids=[7, 8])
    tables = {"steps": [step(i, level="census") for i in range(3)], "ops": [*rows, product]}
    with open_trace(write(path, tables)) as trace:
        return promotions_of(censuses(Signals(trace))[0])


def test_a_smaller_float32_tensor_widens_a_half_one(tmp_path: Path) -> None:
    follow = op(1, 1, "tanh", "float32", tensor_ids=[3, 4], out_bytes=128)
    (found,) = read(tmp_path, mixed(0, ["8x4", "4"], ["float16", "float32"]), follow)
    assert found.wide == "4"
    assert found.share == pytest.approx(256 / 320)


@pytest.mark.parametrize(
    ("shapes", "dtypes", "name"),
    [
        (["8x4", ""], ["float16", "float32"], "add"),  # no dimension: no promotion
        (["8x4", "8x4"], ["float16", "float32"], "add"),  # a float32 stream stays what it is
        (["8x4", "4"], ["float32", "float32"], "add"),
        (["8x4", "4"], ["float16", "float32"], "mm"),
    ],
)
def test_not_these(tmp_path: Path, shapes: list[str], dtypes: list[str], name: str) -> None:
    assert read(tmp_path, mixed(0, shapes, dtypes, name)) == ()


def test_the_stretch_ends_at_the_next_cast(tmp_path: Path) -> None:
    back = op(
        1, 1, "_to_copy", "float32", out_dtypes=["float16"], cast="autocast", tensor_ids=[3, 4], out_bytes=64
    )
    later = op(1, 2, "tanh", "float16", tensor_ids=[4, 5], out_bytes=64)
    (found,) = read(tmp_path, mixed(0, ["8x4", "4"], ["float16", "float32"]), back, later)
    assert found.share == pytest.approx(128 / 320)
