from __future__ import annotations

import math
from pathlib import Path

import pytest

from ampscope.diagnose.moments import (
    Moment,
    Sample,
    course,
    decided_by_eps,
    gradient_norms,
    moments_of,
    vanished,
)
from ampscope.diagnose.policy import POLICY
from ampscope.diagnose.signals import Signals
from ampscope.trace.reader import open_trace
from tests.diagnose.handmade import Row, key, step, write


def sample(taken: int, mean: float, g2: float | None, **fields: object) -> Sample:
    made: dict[str, object] = {"numel": 10, "zeros": 0, "hist_lo": 0, "hist": (), "asked": 10, **fields}
    return Sample(taken, taken, taken, mean=mean, g2=g2, **made)  # type: ignore[arg-type]


def moment(
    *samples: Sample, beta2: float | None = 0.9, dtype: str = "bfloat16", eps: float | None = 1e-8
) -> Moment:
    return Moment(0, 0, "w", dtype, "Adam#0", beta2, eps, samples)


def test_a_moment_that_follows_and_one_that_does_not() -> None:
    exact = [1.0]
    for _ in range(20):
        exact.append(0.9 * exact[-1] + 0.1 * 0.01)
    follows = course(moment(*(sample(i, v, 0.01) for i, v in enumerate(exact))), POLICY)
    stands = course(moment(*(sample(i, 1.0, 0.01) for i in range(21))), POLICY)
    assert follows is not None
    assert follows.followed == pytest.approx(1.0)
    assert stands is not None
    assert stands.asked < -POLICY.moment_asked
    assert stands.followed == 0.0


def test_nothing_was_asked_or_nothing_is_known() -> None:
    assert course(moment(*(sample(i, 1.0, 1.0) for i in range(9))), POLICY) is None
    assert course(moment(*(sample(i, 1.0, None) for i in range(9))), POLICY) is None
    assert course(moment(*(sample(i, 1.0, 0.0) for i in range(9)), beta2=None), POLICY) is None


def test_vanished_counts_only_what_had_a_gradient() -> None:
    unused = moment(*(sample(i, 0.0, 0.0, zeros=10, asked=0) for i in range(4)), dtype="float16")
    lost = moment(*(sample(i, 0.0, 1e-9, zeros=8, asked=10) for i in range(4)), dtype="float16")
    subnormal = moment(
        *(sample(i, 0.0, 1.0, hist_lo=-20, hist=(5, 0), asked=10) for i in range(4)), dtype="float16"
    )
    assert vanished(unused) == (0.0, 0.0)
    assert vanished(lost) == (16.0, 20.0)
    assert vanished(subnormal) == (10.0, 20.0)


def test_eps_decides_where_the_root_is_far_below_it() -> None:
    """v = 2^-60 is a root of 2^-30, a tenth of eps = 1e-8 is 2^-29.9."""
    tiny = sample(10_000, 0.0, 1.0, hist_lo=-61, hist=(10,))
    large = sample(10_000, 0.0, 1.0, hist_lo=-40, hist=(10,))
    m = moment(tiny, large, beta2=0.9)
    assert decided_by_eps(m, tiny, 10.0) == pytest.approx(10.0)
    assert decided_by_eps(m, large, 10.0) == 0.0
    assert decided_by_eps(moment(tiny, eps=None), tiny, 10.0) == 0.0


def test_rows_are_joined_and_the_loss_scale_is_taken_out(tmp_path: Path) -> None:
    def row(role: str, segment: int, **columns: object) -> Row:
        made = {
            "name": "w",
            "numel": 4,
            "of_numel": 4,
            "zeros": 1,
            "nan": 0,
            "dtype": "float32",
            "role": role,
        }
        return {**key(segment), **made, **columns}

    tensors = [row("exp_avg_sq", i, sum=2.0, hist_lo=-3, hist=[3], posinf=0, neginf=0) for i in range(3)]
    tensors += [row("grad", i, sumsq=64.0, scale=4.0, scaled=True, stage="pre_unscale") for i in range(3)]
    tensors += [row("grad", 2, sumsq=1.0, scale=1.0, scaled=False, stage="post_clip")]
    param = {**key(0), "name": "w", "owner": "Adam#0", "betas": [0.9, 0.99], "eps": 1e-8, "numel": 4}
    with open_trace(
        write(tmp_path, {"steps": [step(i) for i in range(3)], "tensors": tensors, "params": [param]})
    ) as t:
        s = Signals(t)
        (found,) = moments_of(s)
        norms = gradient_norms(s, {"w"})
    assert (found.beta2, found.eps, found.owner) == (0.99, 1e-8, "Adam#0")
    assert [x.g2 for x in found.samples] == [1.0, 1.0, 0.25]
    assert [x.mean for x in found.samples] == [0.5] * 3
    assert found.samples[0].asked == 3
    assert norms == {0: 2.0, 1: 2.0, 2: pytest.approx(math.sqrt(1.0))}
