from __future__ import annotations

from pathlib import Path

from ampscope.diagnose.casting import Casting, castings_of, contexts
from ampscope.diagnose.signals import Signals
from ampscope.trace.reader import open_trace
from tests.diagnose.handmade import Row, call, op, step, write


def cast(seq: int, out: int, source: str | None = "w", micro: int = 0, **columns: object) -> Row:
    made = {
        "out_dtypes": ["float16"],
        "cast": "autocast",
        "cast_source": source,
        "tensor_ids": [1, out],
        "host_s": 1.0,
    }
    return {**op(1, seq, "_to_copy", in_shapes=["8x8"]), **made, "micro": micro, **columns}


def used(seq: int, *ids: int) -> Row:
    return op(
        1,
        seq,
        "mm",
        "float16",
        phase="backward",
        tensor_ids=[*ids, 99],
        in_dtypes=["float16"] * len(ids),
        host_s=1.0,
    )


def read(path: Path, *rows: Row) -> Casting:
    with open_trace(
        write(path, {"steps": [step(i, level="census") for i in range(3)], "ops": list(rows)})
    ) as trace:
        (found,) = castings_of(Signals(trace), 3)
    return found


def test_a_weight_cast_three_times_for_one_backward(tmp_path: Path) -> None:
    found = read(tmp_path, cast(0, 11), cast(1, 12), cast(2, 13), used(3, 11, 12, 13))
    (recast,) = found.recasts
    assert (recast.weight, recast.times, recast.by_user) == ("w", 3, False)
    assert (found.total_s, found.cast_s, found.avoidable) == (4.0, 3.0, 0.5)


def test_one_cast_for_each_micro_batch_is_needed(tmp_path: Path) -> None:
    rows = [made for i in range(5) for made in (cast(2 * i, 11 + i), used(2 * i + 1, 11 + i))]
    assert read(tmp_path, *rows).recasts == ()


def test_casts_that_backward_does_not_need_are_those_of_evaluation(tmp_path: Path) -> None:
    assert read(tmp_path, *(cast(i, 11 + i) for i in range(5)), used(9, 11)).recasts == ()


def test_a_result_cast_again_and_again(tmp_path: Path) -> None:
    made = op(1, 0, "relu", tensor_ids=[5, 1], out_shapes=["8x8"])
    whole = [cast(1 + i, 11 + i, source=None) for i in range(4)]
    parts = [cast(1 + i, 11 + i, source=None, in_shapes=["8"]) for i in range(4)]
    (recast,) = read(tmp_path / "a", made, *whole, used(9, 11, 12, 13, 14)).recasts
    assert (recast.weight, recast.times) == (None, 4)
    assert read(tmp_path / "b", made, *parts, used(9, 11, 12, 13, 14)).recasts == ()


def test_contexts_are_counted_within_a_segment(tmp_path: Path) -> None:
    enter = {"file": "a.py", "line": 3}
    calls = [call(i, "autocast.enter", segment=i // 2, **enter) for i in range(4)]
    calls.append(call(9, "autocast.enter", segment=5, detail="repeated", value=60.0, **enter))
    with open_trace(write(tmp_path, {"steps": [step(0)], "calls": calls})) as trace:
        assert contexts(Signals(trace)) == {("a.py", 3): 60}
