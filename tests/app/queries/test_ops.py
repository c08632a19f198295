"""The census: grouping, dtype shares, casts, and the ops that turned finite into non-finite."""

from __future__ import annotations

from pathlib import Path

from ampscope.app.queries import ops
from ampscope.app.queries.source import Cache, Source
from ampscope.trace.reader import open_trace
from tests.app.tracekit import RunKit


def test_census_steps(src: Source) -> None:
    frame = ops.segments(src)
    assert frame[["step", "level", "n"]].to_numpy().tolist() == [[1, "census", 90]]


def test_ops_are_grouped_and_the_place_is_short(src: Source) -> None:
    frame = ops.table(src, 1)
    assert frame["calls"].sum() == 90
    assert frame["host_s"].is_monotonic_decreasing
    assert frame["place"].str.match(r"train\.py:\d+").all()


def test_casts_count_no_work(src: Source) -> None:
    assert set(ops.dtypes_by_module(src, 1)["dtype"]) == {"float16"}
    casts = ops.casts(src, 1)
    assert casts["calls"].sum() == 30
    assert set(casts["kind"]) == {"autocast"}
    assert "head.weight" in set(casts["source"])


def test_low_precision_share_is_of_matmul_work(src: Source) -> None:
    row = ops.low_precision_share(src).iloc[0]
    assert row["low_host_s"] == row["host_s"] > 0


def test_a_transition_needs_finite_inputs(tmp_path: Path) -> None:
    kit = RunKit()
    kit.add("steps", **kit.key(0), level="watch")
    common = {"in_dtypes": ["float16"], "out_dtypes": ["float16"], "file": "/home/me/a b/train.py", "line": 7}
    kit.add(
        "ops",
        **kit.key(0),
        seq=0,
        op="aten::sum",
        in_nonfinite=0,
        out_nonfinite=1,
        shadow_nonfinite=0,
        **common,
    )
    kit.add("ops", **kit.key(0), seq=1, op="aten::mul", in_nonfinite=1, out_nonfinite=1, **common)
    trace = open_trace(kit.write(tmp_path / "r"))
    frame = ops.transitions(Source(Cache(trace)))
    trace.close()
    assert frame[["op", "place"]].to_numpy().tolist() == [["aten::sum", "train.py:7"]]


def test_nothing_recorded(bare: Source) -> None:
    assert ops.segments(bare).empty
    assert ops.table(bare, 0).empty
    assert ops.transitions(bare).empty
    assert ops.low_precision_share(bare).iloc[0]["steps"] == 0
