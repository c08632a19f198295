"""Quantisation recipes against a loop over blocks with ml_dtypes casts, and what must hold of any of them."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ampscope.numerics.formats import of_dtype
from ampscope.numerics.histogram import exponent_histogram
from ampscope.numerics.recipes import (
    RECIPES,
    delayed_scale,
    delayed_scales,
    evaluate,
    evaluate_both,
    quantise,
    recipe_of,
)
from ampscope.numerics.what_if import what_if

ELEMENT = {
    "fp8_e4m3fn": ml_dtypes.float8_e4m3fn, "fp8_e5m2": ml_dtypes.float8_e5m2, "fp6_e2m3": ml_dtypes.float6_e2m3fn,
    "fp6_e3m2": ml_dtypes.float6_e3m2fn, "fp4_e2m1": ml_dtypes.float4_e2m1fn,
}  # fmt: skip
CURRENT = [name for name, r in RECIPES.items() if r.scaling != "delayed"]


def cast(x: NDArray[np.float64], fmt: str) -> NDArray[np.float64]:
    top = of_dtype(fmt).largest
    return np.clip(x, -top, top).astype(ELEMENT[fmt]).astype(np.float64)


def block_scale(amax: float, name: str, tensor_amax: float) -> float:
    r = RECIPES[name]
    f = of_dtype(r.format)
    if amax == 0:
        return 1.0
    if r.scaling == "power_of_two":
        return 2.0 ** (math.floor(math.log2(amax)) - f.emax)
    if r.scaling == "power_of_two_up":
        return 2.0 ** math.ceil(math.log2(amax / f.largest))
    if r.scaling == "e4m3_and_tensor":
        tensor_scale = float(np.float32(tensor_amax / (6 * 448)))
        return float(np.float64(amax / 6 / tensor_scale).astype(ml_dtypes.float8_e4m3fn)) * tensor_scale
    return float(np.float32(amax / f.largest))


def by_loop(x: NDArray[np.float64], name: str) -> NDArray[np.float64]:
    """Dequantised matrix, block by block."""
    r = RECIPES[name]
    height, width = r.block or x.shape
    out = np.empty_like(x)
    for i in range(0, x.shape[0], height):
        for j in range(0, x.shape[1], width):
            part = x[i : i + height, j : j + width]
            scale = block_scale(float(np.abs(part).max()), name, float(np.abs(x).max()))
            out[i : i + height, j : j + width] = cast(part / scale, r.format) * scale if scale else 0.0
    return out


def matrix(rows: int, cols: int, seed: int = 0) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, cols)) * 2.0 ** rng.uniform(-12, 6, (rows, cols))
    x[rng.random(x.shape) < 0.05] = 0
    x[: rows // 3, : cols // 3] *= 2.0**-30
    return torch.from_numpy(x).float()


@pytest.mark.parametrize("shape", [(130, 200), (1, 16), (7, 129)])
@pytest.mark.parametrize("name", CURRENT)
def test_values_are_those_of_the_loop(name: str, shape: tuple[int, int]) -> None:
    x = matrix(*shape)
    expected = by_loop(x.double().numpy(), name)
    assert np.array_equal(quantise(x, name).numpy(), expected)
    columns = by_loop(x.t().double().numpy(), name).T
    assert np.array_equal(quantise(x, name, "columns").numpy(), columns)


@pytest.mark.parametrize("name", CURRENT)
def test_report_counts_what_the_values_show(name: str) -> None:
    x = matrix(64, 96, seed=3)
    q, wide = by_loop(x.double().numpy(), name), x.double().numpy()
    found = evaluate(x, name)
    assert (found.numel, found.nonzero, found.nonfinite) == (wide.size, int(np.count_nonzero(wide)), 0)
    assert found.flushed == np.count_nonzero((wide != 0) & (q == 0))
    error = float(((wide - q) ** 2).sum() / (wide**2).sum())
    assert found.relative_error == pytest.approx(math.sqrt(error), rel=1e-12)
    assert found.sqnr_db == pytest.approx(-10 * math.log10(error), rel=1e-12)
    assert found.flushed_share == found.flushed / found.nonzero


def test_mx_floor_saturates_and_rounding_up_does_not() -> None:
    x = torch.ones(1, 32)
    x[0, 0] = 1.9  # 1.9 * 2^8 = 486 > 464
    assert evaluate(x, "mxfp8").saturated == 1
    assert evaluate(x, "mxfp8_up").saturated == 0
    assert evaluate(x * 0.9, "mxfp8").saturated == 0
    assert evaluate(x, "mxfp8").saturated_share == 1 / 32


def test_an_outlier_hurts_its_block_only() -> None:
    x = torch.full((256, 256), 1e-3)
    x[0, 0] = 1e5
    tensor, tile, block = (evaluate(x, n) for n in ("tensor_e4m3", "1x128_e4m3", "128x128_e4m3"))
    assert tensor.flushed == 256 * 256 - 1
    assert tile.flushed == 127
    assert block.flushed == 128 * 128 - 1
    assert quantise(x, "1x128_e4m3")[1, 1].item() == pytest.approx(1e-3, rel=0.05)


def test_orientation_matters_where_blocks_are_directed() -> None:
    x = torch.ones(64, 64)
    x[:, 0] = 2.0**12
    rows, columns = evaluate_both(x, "mxfp4")
    assert (rows.orientation, columns.orientation) == ("rows", "columns")
    assert rows.flushed == 31 * 64
    assert columns.flushed == 0
    assert len(evaluate_both(x, "128x128_e4m3")) == len(evaluate_both(x, "tensor_e4m3")) == 1


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([n for n in CURRENT if "mx" in n]), st.integers(-20, 20), st.integers(0, 50))
def test_power_of_two_scaling_does_not_change_an_mx_report(name: str, k: int, seed: int) -> None:
    x = matrix(4, 40, seed).double()
    assert evaluate(x, name) == evaluate(x * 2.0**k, name)


@pytest.mark.parametrize("name", CURRENT)
def test_edge_inputs(name: str) -> None:
    for x in (torch.zeros(3, 5), torch.empty(0), torch.empty(0, 4), torch.tensor(0.0)):
        found = evaluate(x, name)
        assert (found.flushed, found.saturated, found.sqnr_db) == (0, 0, math.inf)
        assert quantise(x, name).shape == x.shape
    one = evaluate(torch.tensor(0.75), name)
    assert (one.numel, one.nonzero, one.flushed) == (1, 1, 0)
    odd = torch.tensor([math.inf, math.nan, 1.0])
    assert (evaluate(odd, name).nonfinite, evaluate(odd, name).nonzero) == (2, 1)
    assert quantise(torch.ones(2, 3, 4), name).shape == (2, 3, 4)


@pytest.mark.parametrize("name", CURRENT)
def test_tiny_values_survive_where_the_scale_can_follow(name: str) -> None:
    x = torch.full((4, 32), 1e-30)
    assert evaluate(x, name).flushed == 0


def test_block_scale_that_rounds_to_zero_takes_its_block_along() -> None:
    x = torch.ones(2, 16)
    x[1] = 1e-6
    assert evaluate(x, "nvfp4").flushed == 16


def test_half_input_and_noncontiguous_input() -> None:
    x = matrix(20, 30).half()
    assert evaluate(x.t(), "mxfp8") == evaluate(x.t().contiguous(), "mxfp8")
    assert not quantise(x.requires_grad_(True), "mxfp8").requires_grad


def test_several_slabs_give_what_one_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    x = matrix(300, 140, seed=5)
    whole = {name: (evaluate(x, name), quantise(x, name)) for name in CURRENT}
    monkeypatch.setattr("ampscope.numerics.recipes._SLAB", 5000)
    for name, (report, values) in whole.items():
        again = evaluate(x, name)
        assert again.sqnr_db == pytest.approx(report.sqnr_db, rel=1e-12)
        assert (again.flushed, again.saturated) == (report.flushed, report.saturated)
        assert torch.equal(quantise(x, name), values)


def test_delayed_scale_follows_the_history() -> None:
    assert delayed_scale([1.0, 8.0, 2.0]) == 56.0
    assert delayed_scale([1.0, 8.0, 2.0], history_length=1) == 224.0
    assert delayed_scale([8.0], margin=2) == 14.0
    assert delayed_scale([0.0], previous=3.0) == delayed_scale([math.inf], previous=3.0) == 3.0
    assert delayed_scales([1.0, 2.0, 0.0, 4.0], history_length=2) == (1.0, 448.0, 224.0, 224.0)
    with pytest.raises(ValueError, match="at least one step"):
        delayed_scale([1.0], history_length=0)


def test_delayed_recipe_saturates_when_the_tensor_outgrows_its_history() -> None:
    x = torch.linspace(-4, 4, 100)
    late = evaluate(x, "delayed_e4m3", amax_history=[1.0])
    good = evaluate(x, "delayed_e4m3", amax_history=[1.0, 4.0])
    assert late.saturated == int((x.abs() * 448 > 464).sum())
    assert (good.saturated, evaluate(x, "delayed_e4m3", amax_history=[1.0], margin=2).saturated) == (0, 0)
    assert good.sqnr_db > late.sqnr_db
    hist = what_if(exponent_histogram(x), "fp8_e4m3fn", delayed_scale([1.0]))
    assert hist.overflow_lower <= late.saturated <= hist.overflow_upper


@pytest.mark.parametrize("name", CURRENT)
def test_gaussian_data_has_the_error_of_its_mantissa(name: str) -> None:
    x = torch.randn(256, 256, generator=torch.Generator().manual_seed(0))
    bits = of_dtype(RECIPES[name].format).precision
    assert evaluate(x, name).sqnr_db == pytest.approx(6.02 * bits + 7.5, abs=5)


def test_refusals() -> None:
    with pytest.raises(ValueError, match="not a quantisation recipe that ampscope knows; known are mxfp8"):
        evaluate(torch.ones(2), "int8")
    with pytest.raises(ValueError, match="orientation is 'rows' or 'columns'"):
        evaluate(torch.ones(2), "mxfp8", "diagonal")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="needs amax_history"):
        evaluate(torch.ones(2), "delayed_e4m3")
    with pytest.raises(ValueError, match="real tensors"):
        evaluate(torch.ones(2, dtype=torch.complex64), "mxfp8")
    assert recipe_of(RECIPES["nvfp4"]).block == (1, 16)
