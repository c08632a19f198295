from __future__ import annotations

import math

import pytest
import torch

from ampscope.compare.rounding import DEPTH, UNIT_ROUNDOFF, relative, tolerance


@pytest.mark.parametrize(
    "name", ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"]
)
def test_unit_roundoff_is_half_of_torchs_eps(name: str) -> None:
    assert UNIT_ROUNDOFF[name] == torch.finfo(getattr(torch, name)).eps / 2


def test_the_coarsest_counts() -> None:
    assert tolerance(["float32", "bfloat16", "float16"]) == DEPTH * 2.0**-8
    assert tolerance([]) == tolerance(["complex64"]) == DEPTH * 2.0**-24


def test_what_rounding_does_to_a_deep_network_is_within_and_a_fault_is_not() -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 64)
    half = x.half()
    for _ in range(32):
        w = torch.randn(64, 64) / 8
        x, half = torch.tanh(x @ w), torch.tanh(half @ w.half())
    assert 0 < relative(x.norm().item(), half.float().norm().item()) < tolerance(["float16"])


@pytest.mark.parametrize(
    ("one", "two", "apart"),
    [(1.0, 1.0, 0.0), (1.0, 2.0, 0.5), (-1.0, 1.0, 2.0), (0.0, 0.0, 0.0), (0.0, 1e-9, 1.0), (math.nan, math.nan, 0.0),
     (math.inf, math.inf, 0.0), (math.inf, 1.0, math.inf), (1.0, math.nan, math.inf)],
)  # fmt: skip
def test_relative(one: float, two: float, apart: float) -> None:
    assert relative(one, two) == apart
