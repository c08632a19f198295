from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ampscope.hooks import valuerange
from ampscope.hooks.valuerange import RangeCache, ValueRange, merged, value_range

INF, NAN = math.inf, math.nan

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.float8_e5m2, torch.float8_e4m3fn]


def oracle(values: torch.Tensor) -> ValueRange:
    """The same by NumPy in float64."""
    x = values.detach().to(torch.float64).numpy().reshape(-1)
    finite = x[np.isfinite(x)]
    return ValueRange(
        x.size,
        int(x.size - finite.size),
        int(np.isnan(x).sum()),
        int((x == INF).sum()),
        int((finite == 0).sum()),
        float(np.abs(finite).max()) if finite.size else None,
        float(finite.min()) if finite.size else None,
    )


@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([0.0, -0.0, 1.0, -2.5, 6e-8, 1e-45, 3e4, 1e39, INF, -INF, NAN]), min_size=1))
def test_against_numpy(dtype: torch.dtype, values: list[float]) -> None:
    x = torch.tensor(values, dtype=torch.float64).to(dtype)
    assert value_range(x) == oracle(x)


def test_strides_of_every_kind() -> None:
    x = torch.randn(6, 4, 5)
    x[0, 1, 2] = NAN
    for view in (x, x.permute(2, 0, 1), x[:, ::2], x[1], x[:, :, 1:2].expand(6, 4, 9), x[0, 0, 0]):
        assert value_range(view) == oracle(view)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float8_e5m2])
def test_large_tensors_are_read_in_pieces(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(valuerange, "PIECE", 7)
    x = torch.randn(6, 4, 5)
    x[0, 1, 2], x[5, 3, 4], x[2, 2, 2] = NAN, INF, 0.0
    x = x.to(dtype)
    for view in (x, x.permute(2, 0, 1), x[:, ::2], x[:2, :, ::3], x[:, :, :1].expand(6, 4, 3)):
        assert value_range(view) == oracle(view)


def test_complex_conjugate_and_negative_bits() -> None:
    x = torch.tensor([complex(1.0, -2.0), complex(0.0, NAN)])
    found = value_range(x.conj())
    assert found == ValueRange(4, 1, 1, 0, 1, 2.0, 0.0)
    negative = torch.tensor([complex(0.0, 3.0)]).conj().imag
    assert negative.is_neg()
    found = value_range(negative)
    assert found is not None
    assert (found.amin, found.amax) == (-3.0, 3.0)


def test_empty_has_no_range() -> None:
    assert value_range(torch.ones(0)) is None
    assert merged([]) is None


def test_a_mask_is_told_from_an_overflow() -> None:
    def of(*values: float) -> bool:
        found = value_range(torch.tensor(values))
        assert found is not None
        return found.only_neginf

    assert of(-INF, 1.0)
    assert not of(1.0)
    assert not of(-INF, INF)
    assert not of(-INF, NAN)


@given(st.lists(st.lists(st.sampled_from([0.0, 2.0, -3.0, INF, NAN]), min_size=1), min_size=1, max_size=4))
def test_merging_is_reading_all_at_once(parts: list[list[float]]) -> None:
    ranges = [value_range(torch.tensor(p)) for p in parts]
    whole = value_range(torch.tensor([v for p in parts for v in p]))
    assert merged([r for r in ranges if r is not None]) == whole


def test_the_cache_reads_once_and_again_after_a_write() -> None:
    cache = RangeCache(max_elements=100)
    x = torch.ones(4, 5)
    assert cache.of(x, 1) is cache.of(x, 1)
    assert cache.of(x.t(), 1) is cache.of(x, 1), "a permutation has the same range"
    assert cache.elements == 20
    cache.of(x[:2], 1)
    assert cache.elements == 30
    with torch.no_grad():
        x.mul_(3)
    changed = cache.of(x, 1)
    assert changed is not None
    assert changed.amax == 3.0, "the version counter moved"
    x.numpy()[0] = 7.0
    cache.wrote(1)
    changed = cache.of(x, 1)
    assert changed is not None
    assert changed.amax == 7.0


def test_two_windows_of_one_storage_are_two_ranges() -> None:
    cache = RangeCache(max_elements=100)
    x = torch.arange(8.0)
    first, second = cache.of(x[:4], 1), cache.of(x[4:], 1)
    assert first is not None
    assert second is not None
    assert (first.amax, second.amax) == (3.0, 7.0)
    column = cache.of(x.view(2, 4)[:, 0], 1)
    assert column is not None
    assert column.amax == 4.0


def test_large_tensors_and_unknown_storages() -> None:
    cache = RangeCache(max_elements=3)
    assert cache.of(torch.ones(4), 1) is None
    assert cache.of(torch.ones(2), 0) is not None
    assert len(cache) == 0
    with torch.inference_mode():
        assert cache.of(torch.ones(2), 2) is not None
