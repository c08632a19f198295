"""The tables of one-byte dtypes against ml_dtypes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch

from ampscope.numerics.codes import BYTE_DTYPES, code_bins, code_values, elements_per_byte, per_value


@pytest.mark.parametrize("dtype", BYTE_DTYPES, ids=str)
def test_values_and_bins(dtype: torch.dtype) -> None:
    name = str(dtype).removeprefix("torch.")
    if name == "float4_e2m1fn_x2":
        oracle = np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float64)
    elif name == "bool":
        oracle = (np.arange(256) != 0).astype(np.float64)
    else:
        as_numpy = getattr(ml_dtypes, name) if name.startswith("float") else np.dtype(name)
        oracle = np.arange(256, dtype=np.uint8).view(as_numpy).astype(np.float64)
    values = code_values(dtype)
    assert np.array_equal(values, oracle, equal_nan=True)
    for value, b in zip(values, code_bins(dtype), strict=True):
        if not np.isfinite(value) or value == 0:
            assert b == -1
        else:
            assert 2.0 ** (b - 127) <= abs(value) < 2.0 ** (b - 126)


def test_packed_pairs_are_split() -> None:
    counts = np.zeros(256, np.int64)
    counts[0x21] = 5
    counts[0x11] = 1
    split = per_value(counts, torch.float4_e2m1fn_x2)
    assert (split[1], split[2], split.sum()) == (7, 5, 12)
    assert per_value(counts, torch.uint8) is counts
    assert (elements_per_byte(torch.float4_e2m1fn_x2), elements_per_byte(torch.int8)) == (2, 1)
