"""Second moments, decay and the survival of small updates, against simulated optimizers."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from ampscope.numerics.formats import round_to
from ampscope.numerics.histogram import exponent_histogram
from ampscope.numerics.optimizer_state import decay_absorbed, rounding_evidence, second_moment


def test_second_moment_counts_what_eps_decides() -> None:
    v = torch.from_numpy(2.0 ** np.random.default_rng(0).uniform(-80, -10, 20_000)).float()
    v[:100] = 0
    found = second_moment(exponent_histogram(v), 1e-8, "float32", bias_correction=0.1)
    true = int(((v.double() / 0.1).sqrt() < 1e-8).sum())
    assert found.below_eps_lower <= true <= found.below_eps_upper
    assert found.below_eps == pytest.approx(true, rel=0.01)
    assert (found.zeros, found.subnormal, found.finite, found.eps_vanishes) == (100, 0, 20_000, False)
    assert found.below_eps_share == found.below_eps / 20_000


def test_eps_of_adam_vanishes_in_float16() -> None:
    v = (torch.rand(5000, generator=torch.Generator().manual_seed(0)) * 1e-6).half()
    found = second_moment(exponent_histogram(v), 1e-8, torch.float16)
    assert found.eps_vanishes
    assert found.eps_stored == 0
    assert found.zeros == int((v == 0).sum())
    assert found.subnormal == int(((v != 0) & (v < 2.0**-14)).sum())
    assert not second_moment(exponent_histogram(v), 1e-4, "float16").eps_vanishes
    assert not second_moment(exponent_histogram(v), 0.0, "float16").eps_vanishes
    assert second_moment(exponent_histogram(v), 0.0, "float16").below_eps == 0


def test_second_moment_of_nothing_and_refusals() -> None:
    empty = exponent_histogram(torch.empty(0))
    assert second_moment(empty, 1e-8, "bf16").below_eps_share == 0
    with pytest.raises(ValueError, match="eps must not be negative"):
        second_moment(empty, -1.0, "bf16")
    with pytest.raises(ValueError, match="bias_correction"):
        second_moment(empty, 1e-8, "bf16", bias_correction=0.0)
    with pytest.raises(ValueError, match="not a number format"):
        second_moment(empty, 1e-8, "q4")


@pytest.mark.parametrize("decay", [0.0, 0.9, 0.99, 0.995, 0.9975, 0.999, 0.9995, 0.9999, 1.0])
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_share_of_values_that_never_decay(decay: float, dtype: str) -> None:
    x = round_to(2.0 ** np.random.default_rng(1).uniform(-8, 8, 20_000), dtype)
    observed = float(np.mean(round_to(x * decay, dtype) == x))
    assert decay_absorbed(decay, dtype) == pytest.approx(observed, abs=0.03)


def test_decay_out_of_range() -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        decay_absorbed(1.5, "bf16")


Step = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def nearest(w: torch.Tensor, update: torch.Tensor) -> torch.Tensor:
    return (w.float() + update).bfloat16()


def stochastic(w: torch.Tensor, update: torch.Tensor) -> torch.Tensor:
    """Rounds to bfloat16 by adding 16 random bits below the kept mantissa."""
    noise = torch.randint(0, 1 << 16, w.shape, generator=torch.Generator().manual_seed(5), dtype=torch.int32)
    bits = (w.float() + update).view(torch.int32) + noise
    return (bits >> 16 << 16).view(torch.float32).bfloat16()


def weights() -> torch.Tensor:
    return (torch.randn(60_000, generator=torch.Generator().manual_seed(2)) * 0.02).bfloat16()


def updates(kind: str) -> torch.Tensor:
    rng = torch.Generator().manual_seed(3)
    u = torch.randn(60_000, generator=rng)
    return 1e-5 * (
        u.sign() if kind == "sign" else u if kind == "normal" else u.sign() * -u.abs().erfc().log()
    )


@pytest.mark.parametrize("kind", ["sign", "normal", "heavy"])
@pytest.mark.parametrize(("step", "survives"), [(nearest, False), (stochastic, True)])
def test_stochastic_rounding_is_told_from_nearest(kind: str, step: Step, survives: bool) -> None:
    found = rounding_evidence(weights(), step(weights(), updates(kind)))
    assert found.survives is survives
    assert found.coarse > found.expected_moves > 20
    if survives:
        assert found.coarse_moved == pytest.approx(found.expected_moves, rel=0.7)


def compensated(w: torch.Tensor, steps: int) -> torch.Tensor:
    carry = torch.zeros(w.shape)
    for _ in range(steps):
        y = updates("sign") - carry
        new = (w.float() + y).bfloat16()
        carry, w = (new.float() - w.float()) - y, new
    return w


def test_compensated_sums_show_over_several_steps() -> None:
    w = weights()
    one = rounding_evidence(w, compensated(w, 1))
    assert one.typical_update == pytest.approx(1e-5, rel=0.05)
    assert one.survives is False  # one step looks like nearest rounding
    many = rounding_evidence(w, compensated(w, 60), 60, one.typical_update)
    assert many.survives is True
    plain = w
    for _ in range(60):
        plain = nearest(plain, updates("sign"))
    assert rounding_evidence(w, plain, 60, one.typical_update).survives is False
    with pytest.raises(ValueError, match="compare one step first"):
        rounding_evidence(w, plain, 60)


def test_nothing_to_judge() -> None:
    w = weights()
    still = rounding_evidence(w, w)
    assert (still.typical_update, still.survives) == (None, None)
    large = rounding_evidence(w, nearest(w, updates("sign") * 1e3))
    assert large.survives is None
    bad = w.clone()
    bad[:10] = math.nan
    assert rounding_evidence(bad, nearest(bad, updates("sign"))).survives is False
    with pytest.raises(ValueError, match="float16 or bfloat16"):
        rounding_evidence(w.float(), w.float())
    with pytest.raises(ValueError, match="same shape"):
        rounding_evidence(w, w[1:])
