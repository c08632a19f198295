"""The four numbers: observed before predicted, a reason where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from ampscope.app.queries import summary
from ampscope.app.queries.source import Cache, Source
from ampscope.trace.reader import open_trace
from tests.app.tracekit import RunKit


def built(path: Path, kit: RunKit) -> Source:
    return Source(Cache(open_trace(kit.write(path))))


def test_flushed_is_predicted_from_what_was_held(src: Source) -> None:
    found = summary.flushed(src)
    assert found.basis == "predicted"
    assert found.value is not None
    assert found.value < 1e-6
    assert "at the recorded scale" in found.note
    assert "2 % are 0" in found.note


def test_flushed_is_observed_where_ops_were_recomputed(tmp_path: Path) -> None:
    kit = RunKit()
    kit.add("steps", **kit.key(0), level="census")
    kit.add(
        "ops", **kit.key(0, "backward"), seq=0, op="aten::mm", out_dtypes=["float16"], out_bytes=200, out_zeros=40,
        shadow_flushed=30,
    )  # fmt: skip
    found = summary.flushed(built(tmp_path / "r", kit))
    assert found.basis == "observed"
    assert found.value == pytest.approx(30 / (100 - 40 + 30))


def test_of_nothing_but_nan_no_share_is_named(tmp_path: Path) -> None:
    kit = RunKit()
    kit.add("steps", **kit.key(0), level="census")
    kit.add(
        "ops", **kit.key(0, "backward"), seq=0, op="aten::mm", out_dtypes=["float16"], out_bytes=200, out_zeros=0,
        out_nonfinite=100, shadow_flushed=0,
    )  # fmt: skip
    found = summary.flushed(built(tmp_path / "r", kit))
    assert found.value is None
    assert found.note


def test_absorbed_is_observed_for_half_weights_and_else_named(src: Source, tmp_path: Path) -> None:
    found = summary.absorbed(src)
    assert found.value == 0.0
    assert "float16 weights would lose" in found.note
    kit = RunKit()
    kit.add("steps", **kit.key(0), level="range")
    kit.add("updates", **kit.key(0), name="w", dtype="float16", grad_nonzero=10, unchanged=9)
    found = summary.absorbed(built(tmp_path / "r", kit))
    assert (found.value, found.basis) == (0.9, "observed")


def test_low_precision_without_times_goes_by_flops(tmp_path: Path) -> None:
    kit = RunKit()
    kit.add("steps", **kit.key(0), level="census")
    for dtype, flops in (("float16", 30.0), ("float32", 10.0)):
        kit.add("ops", **kit.key(0), seq=0, op="aten::mm", out_dtypes=[dtype], flops=flops)
    found = summary.low_precision(built(tmp_path / "r", kit))
    assert found.value == 0.75
    assert found.note.endswith("FLOPs")


def test_step_time_says_how_many_steps(src: Source) -> None:
    assert summary.step_time(src).note == "median of 38 steps; 95 % are below 70 ms"


@pytest.mark.parametrize(
    "number", [summary.flushed, summary.absorbed, summary.low_precision, summary.step_time]
)
def test_a_number_without_data_gives_its_reason(number: object, bare: Source) -> None:
    assert callable(number)
    found = number(bare)
    assert found.value is None
    assert found.note
    assert not found.basis
