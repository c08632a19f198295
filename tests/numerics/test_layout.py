"""Walking over strided memory: every element once, bounded pieces, no copy of the whole."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ampscope.numerics.layout import dense_parts, pieces, squeeze_strides


@st.composite
def strided(draw: st.DrawFn) -> torch.Tensor:
    """Any as_strided view of 0..999, overlaps and expanded dimensions included."""
    dims = draw(st.integers(0, 4))
    shape = [draw(st.integers(0, 5)) for _ in range(dims)]
    stride = [draw(st.sampled_from([0, 1, 2, 3, 5, 6, 30])) for _ in range(dims)]
    return torch.arange(1000).as_strided(shape, stride, draw(st.integers(0, 50)))


@settings(max_examples=200, deadline=None)
@given(strided(), st.integers(1, 40))
def test_pieces_cover_each_element_as_often_as_the_tensor(x: torch.Tensor, limit: int) -> None:
    view, times = squeeze_strides(x)
    found = list(pieces(view, limit))
    assert all(0 < p.numel() <= limit for p in found)
    seen = torch.cat([p.reshape(-1) for p in found]) if found else torch.empty(0, dtype=torch.int64)
    assert sorted(seen.tolist() * times) == sorted(x.reshape(-1).tolist())
    assert all(p.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() for p in found)


def test_dense_memory_becomes_flat_whatever_the_permutation() -> None:
    x = torch.empty(4, 5, 6, 7)
    for view in (x, x.permute(3, 1, 0, 2), x.contiguous(memory_format=torch.channels_last), x[:, :, :, None]):
        assert squeeze_strides(view)[0].shape == (840,)


def test_expanded_dimensions_are_taken_out() -> None:
    view, times = squeeze_strides(torch.arange(3)[:, None, None].expand(3, 10**6, 10**6))
    assert (tuple(view.shape), times) == ((3,), 10**12)


def test_parts_keep_values_and_detach() -> None:
    z = torch.tensor([1 + 2j, 3 - 4j], requires_grad=True)
    (plain,) = dense_parts(z)
    assert plain.shape == (2, 2)
    assert not plain.requires_grad
    real, imag = dense_parts(z.conj())
    assert (real.tolist(), imag.tolist()) == ([1, 3], [-2, 4])
    assert dense_parts(torch.ones(2, 3))[0].shape == (2, 3)


def test_sparse_and_quantised_and_mkldnn() -> None:
    coo = torch.eye(3).to_sparse()
    assert dense_parts(coo)[0].tolist() == [1, 1, 1]
    if torch.backends.mkldnn.is_available():
        assert dense_parts(torch.eye(2).to_mkldnn())[0].tolist() == [[1, 0], [0, 1]]
    with pytest.raises(ValueError, match="meta or fake tensor"):
        dense_parts(torch.empty(2, device="meta"))
