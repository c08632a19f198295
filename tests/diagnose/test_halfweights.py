from __future__ import annotations

from pathlib import Path

import pytest

from ampscope.diagnose.halfweights import compensated, half_updates, state_of
from ampscope.diagnose.signals import Signals
from ampscope.trace.reader import open_trace
from tests.diagnose.handmade import Row, key, write


def param(name: str, dtype: str, *state: str) -> Row:
    return {**key(0), "name": name, "dtype": dtype, "owner": "A", "state_dtypes": list(state)}


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (("exp_avg=bfloat16", "exp_avg_sq=bfloat16"), False),
        (("exp_avg=bfloat16", "compensation=bfloat16"), True),
        (("master_weight=float32",), True),
        (("kahan_comp=bfloat16",), True),
        (("c=bfloat16",), True),
        ((), False),
    ],
)
def test_compensation_is_recognised_by_the_state(
    tmp_path: Path, state: tuple[str, ...], expected: bool
) -> None:
    rows = [param("w", "bfloat16", *state), param("v", "float32", "master=float32")]
    with open_trace(write(tmp_path, {"params": rows})) as trace:
        assert compensated(Signals(trace), "bfloat16") is expected


def test_the_last_description_of_a_parameter_counts(tmp_path: Path) -> None:
    rows = [param("w", "float16"), {**param("w", "float16", "exp_avg=float16"), **key(1)}]
    with open_trace(write(tmp_path, {"params": rows})) as trace:
        assert state_of(Signals(trace)) == {"w": {"exp_avg": "float16"}}


def test_only_half_parameters_that_were_meant_to_move(tmp_path: Path) -> None:
    rows = [
        {**key(0), "name": "a", "dtype": "bfloat16", "lr": 0.1},
        {**key(0), "name": "b", "dtype": "bfloat16", "lr": 0.0},
        {**key(0), "name": "c", "dtype": "float32", "lr": 0.1},
        {**key(0), "name": "d", "dtype": "float16"},
    ]
    with open_trace(write(tmp_path, {"updates": rows})) as trace:
        assert half_updates(Signals(trace))["name"].tolist() == ["a", "d"]
