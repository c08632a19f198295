from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ampscope.diagnose.signals import Signals
from ampscope.diagnose.underflow import Loss, Sample, flushed_tail, typical, within
from ampscope.trace.reader import open_trace
from tests.diagnose.handmade import key, op, step, write


def sample(share: float, scale: float | None, segment: int = 0, basis: str = "observed") -> Sample:
    loss = Loss(segment, "m", None, None, None, share * 100, 100, None)
    return Sample(0, 0, segment, segment, "A", scale, 1.0, "m", (loss,), basis)  # type: ignore[arg-type]


@pytest.mark.parametrize("center", [-28.0, -24.0, -20.0, -14.0])
def test_the_tail_estimate_is_within_a_factor_of_the_truth(center: float) -> None:
    generator = np.random.default_rng(0)
    exact = 2.0 ** generator.normal(center, 3.0, 200_000)
    stored = exact.astype(np.float16).astype(np.float64)
    flushed = int((stored == 0).sum())
    exponents = np.floor(np.log2(stored[stored > 0])).astype(int)
    counts = np.bincount(exponents + 24)
    estimate = min(flushed_tail(-24, counts), flushed)
    assert flushed / 4 <= estimate <= max(4 * flushed, 20)


def test_no_pile_up_means_no_estimate() -> None:
    assert flushed_tail(-10, [5, 100, 500]) == 0.0
    assert flushed_tail(-24, [0, 3, 10]) == 0.0


def test_observed_at_the_scale_in_force_goes_first() -> None:
    samples = [
        sample(0.9, 1.0, 0), sample(0.0, 65536.0, 1), sample(0.2, 65536.0, 2), sample(0.4, 65536.0, 3),
        sample(1.0, 65536.0, 4, "estimated"),
    ]  # fmt: skip
    found = typical(samples, 65536.0)
    assert found is not None
    assert found.share == pytest.approx(0.2)
    alone = typical(samples[-1:], 65536.0)
    assert alone is not None
    assert alone.basis == "estimated"
    assert typical([], 1.0) is None


def test_within_cuts_down_to_one_optimizer() -> None:
    one = sample(0.5, 1.0)
    assert within([one], "B", frozenset({"m"}))[0].losses == one.losses
    assert within([one], "A", frozenset({"other"})) == ()


def test_observed_from_ops(tmp_path: Path) -> None:
    half: dict[str, Any] = {"phase": "backward", "dtype": "float16", "module": "layer"}
    rows = [
        op(0, 1, "mm", **half, out_zeros=40, shadow_flushed=32, shadow_sqnr_db=12.0, out_amax=2.0**-20),
        op(0, 2, "mm", **half, out_zeros=0, shadow_flushed=0, shadow_sqnr_db=70.0, out_amax=2.0**-10),
        op(0, 3, "add", phase="backward", dtype="float16"),
    ]
    with open_trace(write(tmp_path, {"ops": rows, "steps": [step(0, scale=8.0)]})) as trace:
        (found,) = Signals(trace).underflow
    assert found.basis == "observed"
    assert found.scale == 8.0
    assert found.share == pytest.approx(32 / (64 - 40 + 32 + 64))
    assert found.sqnr_db == 12.0
    assert found.headroom == pytest.approx(26, abs=0.01)
    assert found.loudest == "layer"


def test_estimated_from_histograms_where_nothing_was_recomputed(tmp_path: Path) -> None:
    row = {
        **key(3), "name": "m:out", "module": "m", "role": "activation_grad", "dtype": "float16", "numel": 1000,
        "zeros": 800, "amax": 2.0**-20, "scale": 1.0, "hist_lo": -24, "hist": [100, 60, 30, 10], "order": 0,
    }  # fmt: skip
    with open_trace(write(tmp_path, {"tensors": [row]})) as trace:
        (found,) = Signals(trace).underflow
    assert found.basis == "estimated"
    assert 0.5 < found.share < 1.0
