from __future__ import annotations

import math
from pathlib import Path

from ampscope.diagnose.calls import SELECT, of_kind, read_calls, stretches_of
from ampscope.trace.reader import open_trace
from tests.diagnose.handmade import call, write


def test_null_stays_apart_from_nan(tmp_path: Path) -> None:
    rows = [
        call(1, "clip_grad_norm_", value=float("nan"), limit=1.0, params=["a", "b"], n_params=2),
        call(2, "scaler.update"),
        call(3, "backward", value=2.5, n_params=100, params=["a"], detail="create_graph penalty_on_scaled"),
    ]
    with open_trace(write(tmp_path, {"calls": rows})) as trace:
        (stream,) = read_calls(trace.sql(SELECT))
    clip, update, backward = stream
    assert clip.value is not None
    assert math.isnan(clip.value)
    assert (clip.limit, clip.params, clip.all_params_named) == (1.0, ("a", "b"), True)
    assert (update.value, update.limit, update.params, update.error) == (None, None, (), None)
    assert not backward.all_params_named
    assert backward.has("create_graph")
    assert not backward.has("create")
    assert [c.index for c in stream] == [0, 1, 2]


def test_one_stream_per_process_in_order(tmp_path: Path) -> None:
    rows = [call(2, "scaler.step"), call(1, "backward")]
    with open_trace(write(tmp_path, {"calls": rows}, ranks=2)) as trace:
        streams = read_calls(trace.sql(SELECT))
    assert [[c.call for c in stream] for stream in streams] == [["backward", "scaler.step"]] * 2
    assert [stream[0].rank for stream in streams] == [0, 1]


def test_of_kind_keeps_the_order(tmp_path: Path) -> None:
    rows = [call(1, "backward"), call(2, "scaler.step"), call(3, "backward", line=7, file="t.py")]
    with open_trace(write(tmp_path, {"calls": rows})) as trace:
        (stream,) = read_calls(trace.sql(SELECT))
    found = of_kind(stream, "backward")
    assert [c.seq for c in found] == [1, 3]
    assert found[1].place == ("t.py", 7)


def test_counted_segments_cut_a_stream(tmp_path: Path) -> None:
    def step(seq: int, segment: int) -> list[dict[str, object]]:
        calls = ("scaler.update", "backward", "scaler.step")
        return [{**call(seq + i, name), "segment": segment} for i, name in enumerate(calls)]

    # Segment 4 is counted, with the update of the step before it; so are 5, 6 and 8; 8 failed, and tells its calls.
    rows = [*step(1, 2), *step(4, 3), {**call(7, "scaler.update"), "segment": 4}, *step(8, 7), *step(11, 8)]
    with open_trace(write(tmp_path, {"calls": rows})) as trace:
        (stream,) = read_calls(trace.sql(SELECT))
    stretches = stretches_of(stream, [4, 5, 6, 8])
    assert [[c.seq for c in stretch] for stretch in stretches] == [list(range(1, 8)), list(range(8, 14))]
    assert [c.index for c in stretches[1]] == list(range(6))
    assert stretches_of(stream, []) == [stream]
    assert stretches_of((), [1]) == []
