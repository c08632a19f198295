from __future__ import annotations

from pathlib import Path

import pytest

from ampscope.diagnose.policy import Policy
from ampscope.diagnose.signals import Signals, plain, quoted
from ampscope.trace.reader import open_trace
from ampscope.trace.schema import TABLES
from tests.diagnose.handmade import H200, call, key, op, step, write


def test_every_frame_has_all_columns_of_an_empty_run(tmp_path: Path) -> None:
    with open_trace(write(tmp_path, {})) as trace:
        s = Signals(trace)
        frames = {
            "steps": s.steps, "scaler": s.scaler, "params": s.params, "events": s.events,
            "nonfinite": s.nonfinite, "modules": s.modules, "updates": s.updates, "ops": s.ops,
            "tensors": s.tensors("grad"),
        }  # fmt: skip
        for name, frame in frames.items():
            assert set(TABLES[name].column_names) | {"rank"} <= set(frame.columns), name
            assert len(frame) == 0
        assert s.rows == dict.fromkeys(TABLES, 0)
        assert (s.streams, s.windows, s.breaches, s.scale_paths, s.transitions, s.underflow) == ((),) * 6
        assert s.device == "cpu"
        assert not s.scaler_used
        assert not s.scales_by_hand


def test_a_long_run_is_read_at_both_ends(tmp_path: Path) -> None:
    one_step = ("backward", "scaler.step", "scaler.update")
    rows = [call(i, one_step[i % 3], object="S", target="A") for i in range(3000)]
    with open_trace(write(tmp_path, {"calls": rows})) as trace:
        head, tail = Signals(trace, Policy(max_calls=100)).streams
        whole = Signals(trace).streams
    assert [c.seq for c in head] == list(range(100))
    assert tail[0].call in ("backward", "scaler.update")
    assert tail[-1].seq == 2999
    assert len(whole) == 1


def test_tensor_rows_are_thinned_by_whole_segments(tmp_path: Path) -> None:
    rows = [
        {**key(segment), "name": f"p{i}", "role": "grad", "order": i, "amax": 1.0}
        for segment in range(40)
        for i in range(5)
    ]
    with open_trace(write(tmp_path, {"tensors": rows})) as trace:
        frame = Signals(trace, Policy(max_tensor_rows=50)).tensors("grad")
        other = Signals(trace).tensors("weight")
    assert len(other) == 0
    assert len(frame) == 50
    assert frame.groupby("segment").size().eq(5).all()
    assert frame["segment"].max() > 35


def test_ops_are_cut_in_the_middle(tmp_path: Path) -> None:
    rows = [op(0, i, "add") for i in range(100)]
    with open_trace(write(tmp_path, {"ops": rows})) as trace:
        frame = Signals(trace, Policy(max_op_rows=10)).ops
    assert frame["seq"].tolist() == [0, 1, 2, 3, 4, 95, 96, 97, 98, 99]


def test_evidence_is_the_answer_to_its_query(tmp_path: Path) -> None:
    with open_trace(write(tmp_path, {"steps": [step(0), step(1, loss=None)]})) as trace:
        s = Signals(trace)
        counted = s.measure("steps", "SELECT count(*) FROM steps", "steps")
        assert counted is not None
        assert (counted.value, counted.unit, counted.basis) == (2, "steps", "observed")
        assert s.measure("none", "SELECT max(loss) FROM steps WHERE step > 9") is None
        assert s.steps["loss_known"].tolist() == [True, False]


def test_facts_about_the_machine(tmp_path: Path) -> None:
    rows = {"params": [{**key(0), "name": "w", "device": "cuda", "owner": "A", "dtype": "float32"}]}
    with open_trace(write(tmp_path, rows, bf16_native=False, devices=(H200,))) as trace:
        s = Signals(trace)
        assert s.device == "cuda"
        assert not s.bf16_native
        assert dict(s.owners) == {"w": "A"}


@pytest.mark.parametrize(("text", "literal"), [("a", "'a'"), ("it's", "'it''s'"), (None, "NULL")])
def test_quoting(text: str | None, literal: str) -> None:
    assert quoted(text) == literal


def test_cells_as_python_values() -> None:
    import numpy as np
    import pandas as pd

    assert plain(np.int64(3)) == 3
    assert plain(np.float64("nan")) is None
    assert plain(pd.NA) is None
    assert plain("x") == "x"
    assert plain(float("inf")) == float("inf")
