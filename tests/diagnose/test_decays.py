from __future__ import annotations

from pathlib import Path

from ampscope.diagnose.decays import Decay, decays_of, standing
from ampscope.diagnose.signals import Signals
from ampscope.trace.reader import open_trace
from tests.diagnose.handmade import Row, op, step, write


def half(segment: int, seq: int, name: str, key: int, scalar: float, absorbed: int, **columns: object) -> Row:
    made = {
        "out_shapes": ["10"],
        "tensor_ids": [key, 9, key],
        "scalars": [scalar],
        "in_zeros": 0,
        "absorbed": absorbed,
    }
    return op(segment, seq, name, "bfloat16", phase="optimizer", **{**made, **columns})


def read(path: Path, *rows: Row) -> tuple[Decay, ...]:
    with open_trace(
        write(path, {"steps": [step(i, level="census") for i in range(9)], "ops": list(rows)})
    ) as trace:
        return decays_of(Signals(trace))


def test_decay_and_square_of_one_storage(tmp_path: Path) -> None:
    (found,) = read(
        tmp_path,
        half(1, 0, "mul_", 1, 0.999, 10),
        half(1, 1, "addcmul_", 1, 0.001, 8),
        half(1, 2, "lerp_", 2, 0.1, 9),
    )
    assert (found.decay, found.kept_by_decay, found.kept_by_sum, found.stands) == (0.999, 1.0, 0.8, 0.8)


def test_other_storages_and_weights_do_not_pair(tmp_path: Path) -> None:
    assert read(tmp_path / "a", half(1, 0, "mul_", 1, 0.999, 10), half(1, 1, "add_", 2, 0.001, 8)) == ()
    assert read(tmp_path / "b", half(1, 0, "mul_", 1, 0.999, 10), half(1, 1, "add_", 1, 0.1, 8)) == ()
    assert read(tmp_path / "c", half(1, 0, "mul_", 1, 0.5, 10), half(1, 1, "add_", 1, 0.5, 8)) == ()


def test_foreach_counts_all_tensors(tmp_path: Path) -> None:
    lists = {"out_shapes": ["10", "10"], "in_dtypes": ["bfloat16"] * 2, "tensor_ids": [1, 2, 1, 2]}
    (found,) = read(
        tmp_path,
        half(1, 0, "_foreach_mul_", 1, 0.99, 20, **lists),
        half(1, 1, "_foreach_addcmul_", 1, 0.01, 5, **lists),
    )
    assert (found.kept_by_decay, found.kept_by_sum) == (1.0, 0.25)


def test_it_stands_still_when_the_last_two_censuses_say_so() -> None:
    def decay(segment: int, kept: float) -> Decay:
        return Decay(0, 0, segment, segment, "bfloat16", 0.999, 1.0, kept, None, None)

    moving, still = (
        [decay(0, 0.0), decay(1, 0.9), decay(7, 0.2)],
        [decay(0, 0.0), decay(1, 0.6), decay(7, 0.9)],
    )
    assert standing(moving, 0.5) == ()
    assert [d.segment for d in standing(still, 0.5)] == [1, 7]
    assert standing(still[:1], 0.5) == ()
