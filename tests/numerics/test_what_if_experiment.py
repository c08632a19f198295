"""Predictions checked by experiment: record a float32 run, predict a float16 run at other scales, do that run.

The stated errors are the tolerances: flushed and subnormal shares within 0.02 of all gradients (measured: 0.015
at a share of 0.4, below 0.003 elsewhere), the ends of the window exact, the replay exact.
"""

from __future__ import annotations

import functools

import pytest
import torch

from ampscope.numerics import (
    ExponentHistogram,
    exponent_histogram,
    scale_window,
    simulate_loss_scale,
    what_if,
)

SHRINK = 2.0**-9
"""Makes gradients small, as a long sequence or a large batch would."""

Histograms = dict[str, ExponentHistogram]


def network() -> torch.nn.Sequential:
    rng = torch.Generator().manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 128), torch.nn.Tanh(), torch.nn.Linear(128, 10)
    )  # fmt: skip
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=rng) * p.shape[-1] ** -0.5 * 0.6)
    return model


class Recorded:
    """A model whose linear outputs' gradients are read as they pass."""

    def __init__(self) -> None:
        self.model = network()
        self.seen: Histograms = {}
        for name, module in self.model.named_modules():
            if isinstance(module, torch.nn.Linear):
                module.register_forward_hook(functools.partial(self._watch, name))

    def _watch(self, name: str, _module: torch.nn.Module, _inputs: object, out: torch.Tensor) -> None:
        out.register_hook(lambda g: self.seen.update({name: exponent_histogram(g)}))

    def loss(self, seed: int, dtype: torch.dtype | None, size: float = 1.0) -> torch.Tensor:
        rng = torch.Generator().manual_seed(seed)
        x, y = torch.randn(128, 64, generator=rng) * size, torch.randint(0, 10, (128,), generator=rng)
        with torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
            out = self.model(x)
        return torch.nn.functional.cross_entropy(out.float(), y) * SHRINK


def backward(scale: float, dtype: torch.dtype | None) -> Histograms:
    recorded = Recorded()
    (recorded.loss(0, dtype) * scale).backward()
    return recorded.seen


@pytest.fixture(scope="module")
def float32_run() -> Histograms:
    return backward(1.0, None)


@pytest.mark.parametrize("scale", [1.0, 8.0, 64.0, 3000.0, 2.0**14])
def test_flushed_and_subnormal_in_float16(float32_run: Histograms, scale: float) -> None:
    observed = backward(scale, torch.float16)
    for name, before in float32_run.items():
        predicted, after = what_if(before, "fp16", scale), observed[name]
        assert after.dtype == "float16"
        flushed = (after.zeros - before.zeros) / before.nonzero
        subnormal = int(after.counts[127 - 24 : 127 - 14].sum()) / before.nonzero
        assert predicted.flushed_share == pytest.approx(flushed, abs=0.02)
        assert predicted.subnormal_share == pytest.approx(subnormal, abs=0.02)
    assert what_if(float32_run["0"], "fp16", 1.0).flushed_share > 0.2  # there is something to predict


def test_another_scale_from_a_float16_run() -> None:
    recorded, lower = backward(2.0**14, torch.float16), backward(2.0**3, torch.float16)
    for name, hist in recorded.items():
        predicted = what_if(hist, "fp16", 2.0**-11)
        flushed = (lower[name].zeros - hist.zeros) / hist.nonzero
        assert predicted.flushed_share == pytest.approx(flushed, abs=0.02)
    assert what_if(lower["0"], "fp16", 2.0**11).blind


def test_the_window_ends_where_the_run_overflows(float32_run: Histograms) -> None:
    window = scale_window(float32_run, "fp16", eps=1e-3)
    assert window.feasible
    assert sum(h.nonfinite for h in backward(window.hi, torch.float16).values()) == 0
    assert window.closes_high is not None
    assert backward(window.hi * 2, torch.float16)[window.closes_high].nonfinite > 0
    low = backward(window.lo, torch.float16)
    shares = {n: (low[n].zeros - h.zeros) / h.nonzero for n, h in float32_run.items()}
    assert max(shares.values()) <= 1.3e-3
    assert window.closes_low == max(shares, key=lambda n: shares[n])


def train(steps: int, policy: dict[str, float] | None) -> tuple[list[float], list[float]]:
    """(scale in force, largest true gradient) per step of a run, in float16 if there is a policy."""
    recorded = Recorded()
    opt = torch.optim.SGD(recorded.model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", enabled=policy is not None, **(policy or {}))  # type: ignore[arg-type]
    scales, largest = [], []
    for step in range(steps):
        size = 3.0 if step % 7 == 3 else 1.0
        loss = recorded.loss(step, torch.float16 if policy else None, size)
        scales.append(float(scaler.scale(torch.ones(1))))
        opt.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        # Weight gradients are float16 too, before autocast's backward casts them to float32.
        weights = [exponent_histogram(p.grad) for p in recorded.model.parameters() if p.grad is not None]
        largest.append(max(h.amax or 0.0 for h in (*weights, *recorded.seen.values())))
    return scales, largest


def test_replay_predicts_the_scaler_of_a_float16_run_from_a_float32_run() -> None:
    policy = {"init_scale": 2.0**30, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 4}
    _, largest = train(24, None)
    actual, _ = train(24, policy)
    found = simulate_loss_scale(largest, None, 2.0**30, 2.0, 0.5, 4)
    assert list(found.scales) == actual
    assert 3 < found.n_skipped < 20
