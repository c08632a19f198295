"""The format table and rounding, against torch casts and ml_dtypes over every value and its neighbours."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ampscope.numerics.formats import FORMATS, of_dtype, round_to

ML = {
    "fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "fp8_e4m3fnuz": ml_dtypes.float8_e4m3fnuz, "fp8_e5m2": ml_dtypes.float8_e5m2,
    "fp8_e5m2fnuz": ml_dtypes.float8_e5m2fnuz, "fp6_e2m3": ml_dtypes.float6_e2m3fn,
    "fp6_e3m2": ml_dtypes.float6_e3m2fn, "fp4_e2m1": ml_dtypes.float4_e2m1fn, "e8m0": ml_dtypes.float8_e8m0fnu,
}  # fmt: skip
TORCH = {
    "fp16": torch.float16, "bf16": torch.bfloat16, "fp8_e4m3fn": torch.float8_e4m3fn,
    "fp8_e4m3fnuz": torch.float8_e4m3fnuz, "fp8_e5m2": torch.float8_e5m2, "fp8_e5m2fnuz": torch.float8_e5m2fnuz,
}  # fmt: skip
SATURATES_IN_ML = {"fp6_e2m3", "fp6_e3m2", "fp4_e2m1"}


def every_value(name: str) -> NDArray[np.float64]:
    """Sorted finite values of the format, from the oracle's decoding of every code."""
    dtype = ML[name]
    bits = {"fp6_e2m3": 6, "fp6_e3m2": 6, "fp4_e2m1": 4}.get(name, 8 * np.dtype(dtype).itemsize)
    codes = np.arange(2**bits, dtype=np.uint16 if bits == 16 else np.uint8)
    with np.errstate(invalid="ignore"):
        values = codes.view(dtype).astype(np.float64)
    found: NDArray[np.float64] = np.unique(values[np.isfinite(values)])
    return found


def inputs(name: str) -> NDArray[np.float32]:
    """Every value, every midpoint, the float32 neighbours of both, and what lies beyond the range."""
    values = every_value(name)
    points = np.concatenate([values, (values[1:] + values[:-1]) / 2])
    top, step = values[-1], values[-1] - values[-2]
    points = np.concatenate(
        [points, top + step * np.array([0.25, 0.5, 0.75, 1, 2, 100]), [0.0, values[0] / 4]]
    )
    with np.errstate(over="ignore"):
        narrow = np.concatenate([points, -points]).astype(np.float32)
        narrow = np.concatenate([narrow, np.nextafter(narrow, np.float32(math.inf))])
        narrow = np.concatenate([narrow, np.nextafter(narrow, np.float32(-math.inf))])
    return np.concatenate([narrow, np.array([math.inf, -math.inf, math.nan, -0.0], np.float32)])


def same(a: NDArray[np.float64], b: NDArray[np.float64]) -> None:
    differ = ~((a == b) | (np.isnan(a) & np.isnan(b)))
    assert not differ.any(), (a[differ][:5], b[differ][:5])


@pytest.mark.parametrize("name", list(ML))
def test_rounding_is_that_of_ml_dtypes(name: str) -> None:
    x = inputs(name)
    if name == "e8m0":  # ml_dtypes rounds every float32 subnormal above 2^-127 up, also the nearer half
        x = x[(np.abs(x) <= 2.0**-127) | (np.abs(x) >= 2.0**-126) | np.isnan(x)]
    with np.errstate(over="ignore", invalid="ignore"):
        oracle = x.astype(ML[name]).astype(np.float64)
    f = of_dtype(name)
    if f.overflow == "saturate" and name not in SATURATES_IN_ML:
        oracle = np.where(np.isnan(oracle) & ~np.isnan(x), np.copysign(f.largest, x), oracle)
    if name in SATURATES_IN_ML:
        x, oracle = x[~np.isnan(x)], oracle[~np.isnan(x)]  # these formats have no NaN
    same(round_to(x.astype(np.float64), name), oracle)


@pytest.mark.parametrize("name", list(TORCH))
def test_rounding_is_that_of_a_torch_cast(name: str) -> None:
    x = torch.from_numpy(inputs(name))
    same(round_to(x, name).numpy(), x.to(TORCH[name]).to(torch.float64).numpy())


@pytest.mark.parametrize("name", list(ML))
def test_the_table_says_what_the_codes_say(name: str) -> None:
    values, f = every_value(name), of_dtype(name)
    positive = values[values > 0]
    assert f.largest == positive[-1]
    assert f.min_subnormal == positive[0]
    normal = positive[positive >= f.min_normal]
    assert f.min_normal == normal[0]
    assert set(np.diff(positive[positive <= f.min_normal])) <= {f.min_subnormal}
    for v in positive[positive < f.largest][:: max(1, len(positive) // 500)]:
        assert f.ulp(float(v)) == positive[np.searchsorted(positive, v) + 1] - v


@pytest.mark.parametrize("name", [n for n in ML if n != "e8m0"])
def test_thresholds_are_where_rounding_changes(name: str) -> None:
    f = of_dtype(name)
    assert round_to(f.flush_threshold, f) == 0
    assert round_to(math.nextafter(f.flush_threshold, 1), f) == f.min_subnormal
    below = math.nextafter(f.smallest_overflow, 0)
    assert round_to(below, f) == f.largest
    at = round_to(f.smallest_overflow, f)
    assert {"inf": math.isinf(at), "nan": math.isnan(at), "saturate": at == f.largest}[f.overflow]


def test_design_figures() -> None:
    fp16, e4m3 = of_dtype("float16"), of_dtype(torch.float8_e4m3fn)
    assert (fp16.largest, fp16.min_normal, fp16.min_subnormal) == (65504, 2.0**-14, 2.0**-24)
    assert (fp16.flush_threshold, fp16.overflow_threshold, fp16.overflow_at_threshold) == (
        2.0**-25,
        65520,
        True,
    )
    assert (e4m3.overflow_threshold, e4m3.overflow_at_threshold) == (464, False)
    assert of_dtype("fp8_e5m2").overflow_threshold == 61440
    assert of_dtype("bf16").smallest_overflow == pytest.approx(3.3961775e38, rel=1e-7)


def test_tf32_cuts_the_mantissa_and_keeps_the_range() -> None:
    x = np.array([1 + 2.0**-10, 1 + 2.0**-11, 1 + 3 * 2.0**-11, 1e-45, 3.4e38, math.inf])
    assert list(round_to(x, "tf32"))[:3] == [1 + 2.0**-10, 1.0, 1 + 2.0**-9]
    assert round_to(float(np.float32(1e-45)), "tf32") == float(np.float32(1e-45))
    assert math.isinf(round_to(math.inf, "tf32"))
    assert math.isinf(of_dtype("tf32").overflow_threshold)


def test_float64_input_is_rounded_once() -> None:
    just_above_tie = 1 + 2.0**-11 + 2.0**-40
    assert round_to(just_above_tie, "fp16") == 1 + 2.0**-10
    assert round_to(torch.tensor([just_above_tie], dtype=torch.float64), "fp16").item() == 1 + 2.0**-10


def test_kinds_of_input() -> None:
    tensor = torch.ones(2, 3, dtype=torch.bfloat16, requires_grad=True).t()
    assert round_to(tensor, "fp4").shape == (3, 2)
    assert not round_to(tensor, "fp4").requires_grad
    assert isinstance(round_to(0.3, "fp4"), float)
    assert round_to(np.array([[0.3]], np.float32), "fp4").shape == (1, 1)
    assert round_to(np.empty((0, 2)), "fp16").shape == (0, 2)


def test_aliases_lead_to_the_row() -> None:
    for dtype in (*TORCH.values(), torch.float32, torch.float8_e8m0fnu, torch.float4_e2m1fn_x2):
        assert of_dtype(dtype) is FORMATS[str(dtype).removeprefix("torch.")]
    assert of_dtype("half") is of_dtype("fp16") is of_dtype("torch.float16")
    assert of_dtype(of_dtype("bf16")).name == "bf16"


@pytest.mark.parametrize("name", ["float7", "", "int8"])
def test_unknown_format(name: str) -> None:
    with pytest.raises(ValueError, match="is not a number format that ampscope knows; known are fp32, fp16"):
        of_dtype(name)


@settings(max_examples=200, deadline=None)
@given(st.floats(allow_nan=False), st.sampled_from([n for n in ML if n != "e8m0"]))
def test_rounding_is_idempotent_odd_and_nearest(x: float, name: str) -> None:
    f = of_dtype(name)
    y = round_to(x, f)
    if math.isnan(y):
        assert f.overflow == "nan"
        assert abs(x) >= f.overflow_threshold
        return
    assert round_to(y, f) == y
    assert round_to(-x, f) == -y
    if abs(x) <= f.largest:
        assert abs(x - y) <= f.ulp(x) / 2
