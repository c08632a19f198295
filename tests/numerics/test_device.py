"""One row: its blank state, its decoding, and the fallback's independence of ambient torch state."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ampscope.numerics.device import ROW, RowKey, add_views, blank_rows, decode, elements, flat_parts
from ampscope.numerics.histogram import exponent_histogram
from ampscope.numerics.scratch import W32


def test_a_blank_row_is_no_elements() -> None:
    rows = blank_rows(torch.device("cpu"), 2)
    assert rows.shape == (2, ROW)
    h = decode(rows[0].numpy(), RowKey(None, "float32", 0, 1, W32))
    assert (h.numel, h.nonzero, h.amax, h.amin_nonzero, h.sum) == (0, 0, None, None, 0.0)


def test_only_bad_elements_have_no_range() -> None:
    row = blank_rows(torch.device("cpu"), 1)[0]
    add_views(row, [torch.full((3,), torch.nan)], W32)
    h = decode(row.numpy(), RowKey(None, "float32", 3, 1, W32))
    assert (h.nan, h.amax, h.amin_nonzero, h.nonzero) == (3, None, None, 0)


def test_padding_does_not_count() -> None:
    """A kernel reads whole blocks: what lies beyond the tensor lands in bin 0, which is derived from the rest."""
    row = blank_rows(torch.device("cpu"), 1)[0]
    x = torch.tensor([1.0, 0.0, 1e-40])
    add_views(row, [x], W32)
    row[0] += 29
    h = decode(row.numpy(), RowKey(None, "float32", 3, 1, W32))
    assert np.array_equal(h.counts, exponent_histogram(x).counts)


def test_multiplicity_multiplies_counters_and_sums() -> None:
    x = torch.tensor([1.5, 0.0, torch.inf])[:, None].expand(3, 10)
    width, times, views = flat_parts(x)
    assert (times, elements(views)) == (10, 3)
    row = blank_rows(torch.device("cpu"), 1)[0]
    add_views(row, views, width)
    assert decode(row.numpy(), RowKey(None, "float32", 3, times, width)) == exponent_histogram(x)


def test_parts_of_unequal_multiplicity_are_read_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = (torch.ones(3, 1).expand(3, 4), torch.zeros(5))
    monkeypatch.setattr("ampscope.numerics.device.dense_parts", lambda _: parts)
    width, times, views = flat_parts(torch.empty(0))
    assert (times, elements(views)) == (1, 17)
    row = blank_rows(torch.device("cpu"), 1)[0]
    add_views(row, views, width)
    h = decode(row.numpy(), RowKey(None, "float32", 17, times, width))
    assert (h.sum, h.zeros) == (12.0, 5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_ambient_state_does_not_matter(dtype: torch.dtype) -> None:
    x = torch.tensor([3.0, -1e-3, 0.0, 1e30], dtype=dtype)
    width, _, views = flat_parts(x)
    torch.set_default_dtype(torch.float16)
    try:
        with torch.device("meta"), torch.inference_mode():
            row = blank_rows(torch.device("cpu"), 1)[0]
            add_views(row, views, width)
    finally:
        torch.set_default_dtype(torch.float32)
    found = decode(row.numpy(), RowKey(None, str(dtype)[6:], 4, 1, width))
    assert found == exponent_histogram(x)
