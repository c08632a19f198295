"""One-byte dtypes (float8, float4 pairs, bool, 8-bit integers): statistics from the counts of 256 codes.

One `bincount` per chunk says everything; values come from a table, so nothing is rounded.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray

from .binades import HIST_BINS, HIST_MIN

BYTE_DTYPES = tuple(
    getattr(torch, name)
    for name in (
        "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
        "float4_e2m1fn_x2", "bool", "uint8", "int8",
    )
    if hasattr(torch, name)
)  # fmt: skip
"""dtypes read by code; float4_e2m1fn_x2 holds two elements in a byte."""

_FP4 = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0])


def elements_per_byte(dtype: torch.dtype) -> int:
    """2 for packed float4, else 1."""
    return 2 if dtype is getattr(torch, "float4_e2m1fn_x2", None) else 1


@cache
def code_values(dtype: torch.dtype) -> NDArray[np.float64]:
    """float64[256]: the value of each code; float64[16] for float4."""
    if elements_per_byte(dtype) == 2:
        return _FP4
    with torch.inference_mode(mode=False):
        codes = torch.arange(256, dtype=torch.uint8, device="cpu")
        if dtype is torch.bool:
            return (codes != 0).to(torch.float64).numpy()
        wide = codes.view(dtype).to(torch.float32).to(torch.float64)
    return wide.numpy()


def per_value(counts: NDArray[np.int64], dtype: torch.dtype) -> NDArray[np.int64]:
    """Counts of bytes to counts of the values of `code_values`: splits packed pairs."""
    if elements_per_byte(dtype) == 1:
        return counts
    square = counts.reshape(16, 16)
    both: NDArray[np.int64] = square.sum(axis=0) + square.sum(axis=1)
    return both


@cache
def code_bins(dtype: torch.dtype) -> NDArray[np.int64]:
    """int64: the bin of each value of `code_values`, -1 for zero and non-finite."""
    values = np.abs(code_values(dtype))
    finite = np.isfinite(values) & (values > 0)
    bins = np.full(len(values), -1, np.int64)
    bins[finite] = np.frexp(values[finite])[1] - 1 - HIST_MIN
    clipped: NDArray[np.int64] = np.where(finite, np.clip(bins, 0, HIST_BINS - 1), -1)
    return clipped
