"""Walk over a strided tensor in pieces of bounded size, without a copy of the whole.

Order is irrelevant to every statistic here, so dense memory is walked flat whatever the permutation, and an
expanded dimension (stride 0) is read once and counted many times. Never writes, never allocates.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

_COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc, torch.jagged)


def dense_parts(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Strided real tensors that together hold the elements of `tensor`, detached.

    Sparse tensors give their stored values (uncoalesced COO: coalesced first, for the value of an element is
    the sum of its duplicates; implicit zeros are not elements). Complex gives real and imaginary parts; a
    conjugate bit becomes a negative bit on the imaginary one; nested tensors give their components. Raises
    ValueError for tensors without data (meta, fake).
    """
    if tensor.is_meta or getattr(tensor, "fake_mode", None) is not None:
        raise ValueError("a meta or fake tensor has no values to read.")
    x = tensor.detach()
    if x.is_nested and x.layout is torch.strided:
        return tuple(part for component in x.unbind() for part in dense_parts(component))
    if x.is_quantized:
        x = x.dequantize()
    if x.layout is torch.sparse_coo:
        x = x.coalesce().values()
    elif x.layout in _COMPRESSED:
        x = x.values()
    elif x.layout is not torch.strided:
        x = x.to_dense()
    if not x.is_complex():
        return (x,)
    return (x.real, x.imag) if x.is_conj() else (torch.view_as_real(x),)


def squeeze_strides(x: torch.Tensor) -> tuple[torch.Tensor, int]:
    """(view, times): a view of `x` without expanded dimensions and with its dimensions merged where memory
    allows, and how many times each of its elements occurs in `x`."""
    times = 1
    dims: list[tuple[int, int]] = []
    for size, stride in zip(x.shape, x.stride(), strict=True):
        if size == 1:
            continue
        if stride == 0:
            times *= size
        else:
            dims.append((size, stride))
    merged: list[tuple[int, int]] = []
    for size, stride in sorted(dims, key=lambda d: -d[1]):
        if merged and merged[-1][1] == size * stride:
            merged[-1] = (merged[-1][0] * size, stride)
        else:
            merged.append((size, stride))
    view = x.as_strided([s for s, _ in merged], [t for _, t in merged], x.storage_offset())
    return view, times


def pieces(x: torch.Tensor, limit: int) -> Iterator[torch.Tensor]:
    """Views that cover the elements of strided `x` once each, with at most `limit` elements in each."""
    n = x.numel()
    if n == 0:
        return
    if n <= limit:
        yield x
        return
    inner = n // x.shape[0]
    if inner > limit:
        for i in range(x.shape[0]):
            yield from pieces(x.select(0, i), limit)
        return
    rows = limit // inner
    for start in range(0, x.shape[0], rows):
        yield x.narrow(0, start, min(rows, x.shape[0] - start))
