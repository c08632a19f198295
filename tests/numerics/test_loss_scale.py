"""The window of loss scales and the replay of dynamic loss scaling, against casts and torch's own GradScaler."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ampscope.numerics.histogram import ExponentHistogram, exponent_histogram
from ampscope.numerics.loss_scale import LossScaleTrajectory, scale_window, simulate_loss_scale
from ampscope.numerics.what_if import what_if


def hist(*values: float, dtype: torch.dtype = torch.float32) -> ExponentHistogram:
    return exponent_histogram(torch.tensor(values, dtype=dtype))


def test_window_names_the_tensor_on_each_side() -> None:
    window = scale_window(
        {"embed": hist(3e-7, 2e-7), "head": hist(0.5, 3.0), "mid": hist(1e-3)}, "fp16", eps=0
    )
    assert (window.closes_low, window.closes_high, window.feasible) == ("embed", "head", True)
    assert window.hi == 2.0**14
    assert window.lo == 2.0**-2
    assert window.best == 2.0**12
    assert "4096" in window.action


def test_window_that_is_closed() -> None:
    window = scale_window({"tiny": hist(1e-10), "huge": hist(1000.0)}, "fp16")
    assert not window.feasible
    assert window.lo > window.hi
    assert (window.closes_low, window.closes_high) == ("tiny", "huge")
    assert window.best == window.hi
    assert "tiny" in window.action
    assert "huge" in window.action


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(2.0**-40, 2.0**14, width=32), min_size=1, max_size=60),
    st.sampled_from([0.0, 0.05, 0.5]),
    st.sampled_from(["fp16", "fp8_e5m2", "bf16"]),
)
def test_ends_are_the_last_scales_that_hold(values: list[float], eps: float, fmt: str) -> None:
    h = hist(*values)
    window = scale_window({"x": h}, fmt, eps)
    assert what_if(h, fmt, window.hi).overflow_upper == 0
    if window.hi < 2.0**127:
        assert what_if(h, fmt, window.hi * 2).overflow_lower > 0
    assert what_if(h, fmt, window.lo).flushed_share <= eps
    if window.lo > 2.0**-126:
        assert what_if(h, fmt, window.lo / 2).flushed_share > eps
    if window.feasible:
        assert window.best is not None
        assert window.lo <= window.best <= window.hi


def test_window_of_nothing() -> None:
    window = scale_window({"frozen": hist(0.0, 0.0)})
    assert (window.lo, window.hi, window.best, window.closes_low) == (0.0, math.inf, None, None)
    assert "Nothing nonzero" in window.action


def test_window_warns_of_half_data() -> None:
    window = scale_window({"a": hist(0.0, 1.0, dtype=torch.float16), "b": hist(0.0, 1.0)})
    assert window.blind == ("a",)


def test_window_refusals() -> None:
    with pytest.raises(ValueError, match="eps is a share"):
        scale_window({"a": hist(1.0)}, eps=2)
    with pytest.raises(ValueError, match="at least one histogram"):
        scale_window({})
    with pytest.raises(ValueError, match="not a number format"):
        scale_window({"a": hist(1.0)}, "int4")


def real_grad_scaler(amax: list[float], policy: dict[str, float]) -> tuple[list[float], list[bool]]:
    """torch's own scaler over a one-element float16 gradient of amax * scale."""
    scaler = torch.amp.GradScaler("cpu", **policy)  # type: ignore[arg-type]
    p = torch.nn.Parameter(torch.zeros(1))
    opt = torch.optim.SGD([p], lr=0.0)
    scales, skipped = [], []
    scaler.scale(torch.zeros(1))  # the scale becomes a float32 tensor here
    for a in amax:
        scales.append(scaler.get_scale())
        p.grad = (torch.tensor([a], dtype=torch.float64) * scaler.get_scale()).half().float()
        skipped.append(not bool(p.grad.isfinite()))
        scaler.step(opt)
        scaler.update()
    return [*scales, scaler.get_scale()], skipped


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([1e-6, 0.3, 0.9999, 1.5, 70.0, 3e4, math.inf, math.nan]), max_size=40),
    st.sampled_from([65536.0, 1.0, 3.7, 2.0**120]),
    st.sampled_from([(2.0, 0.5), (1.5, 0.7), (4.0, 0.1)]),
    st.integers(1, 5),
)
def test_replay_is_torchs_grad_scaler(
    amax: list[float], init: float, factors: tuple[float, float], interval: int
) -> None:
    growth, backoff = factors
    policy = {
        "init_scale": init, "growth_factor": growth, "backoff_factor": backoff, "growth_interval": interval
    }  # fmt: skip
    found = simulate_loss_scale(amax, None, init, growth, backoff, interval)
    scales, skipped = real_grad_scaler(amax, policy)
    assert [*found.scales, found.final_scale] == scales
    assert list(found.skipped) == skipped
    assert found.n_skipped == sum(skipped)


def test_replay_with_histograms_says_what_was_flushed() -> None:
    h = hist(2.0**-30, 2.0**-10, 1.0, 1.0)
    found = simulate_loss_scale([1.0, None, 1.0], [h, None, h], init_scale=2.0**17, growth_interval=1000)
    assert found.skipped == (True, False, True)
    assert found.scales == (2.0**17, 2.0**16, 2.0**16)
    assert found.flushed == (0.0, None, 0.0)
    low = simulate_loss_scale([1.0, 1.0], [h, h], init_scale=1.0)
    assert low.flushed == (0.25, 0.25)
    assert low.mean_flushed == 0.25
    assert low.skip_rate == 0
    assert found.skip_rate == pytest.approx(2 / 3)


def test_replay_of_nothing() -> None:
    found = simulate_loss_scale([])
    assert found == LossScaleTrajectory((), (), (), 65536.0)
    assert (found.skip_rate, found.mean_flushed) == (0.0, None)


@pytest.mark.parametrize(
    ("policy", "match"),
    [
        ({"init_scale": 0.0}, "init_scale"),
        ({"growth_factor": 1.0}, "growth_factor"),
        ({"backoff_factor": 1.0}, "backoff_factor"),
        ({"growth_interval": 0}, "growth_interval"),
        ({"fmt": "fp3"}, "not a number format"),
    ],
)
def test_replay_refusals(policy: dict[str, float], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        simulate_loss_scale([1.0], **policy)  # type: ignore[arg-type]


def test_replay_needs_one_histogram_a_step() -> None:
    with pytest.raises(ValueError, match="do not match"):
        simulate_loss_scale([1.0, 2.0], [hist(1.0)])


def test_amax_between_largest_and_the_rounding_limit_does_not_overflow() -> None:
    assert simulate_loss_scale([65519.0], init_scale=1.0).skipped == (False,)
    assert simulate_loss_scale([65520.0], init_scale=1.0).skipped == (True,)
    assert torch.tensor(65520.0).half().isinf()
