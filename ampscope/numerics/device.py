"""The row of a device buffer that holds one tensor's statistics: its layout, how it is filled with torch
operations that never wait for the device, and how it becomes a histogram on the host.

The Triton kernel of `kernel` fills the same row in one pass; this is what runs where there is no Triton.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from .binades import HIST_BINS, ExponentHistogram
from .codes import BYTE_DTYPES, code_values, elements_per_byte
from .layout import dense_parts, pieces, squeeze_strides
from .scratch import W32, Width, width_of

ROW = 272
"""int64 columns of a row. 0..255: elements by bin index, where bin 0 also holds zeros (and padding), bin 255
also what is not finite; then the counters, and three sums as the bits of float64."""

ZEROS, NAN, POSINF, NEGINF, GE_65520, AMAX, AMIN, SUMS = range(256, 264)

PIECE = 1 << 20
"""Elements that a fallback read handles at once: bounds its temporary memory to about 40 MB."""

_LANES = 64


def blank_rows(device: torch.device, capacity: int) -> torch.Tensor:
    """int64[capacity, ROW] of empty rows: no largest (-1) and no smallest (2^63 - 1) magnitude yet."""
    with torch.inference_mode(mode=False):
        rows = torch.zeros((capacity, ROW), dtype=torch.int64, device=device)
        rows[:, AMAX] = -1
        rows[:, AMIN] = torch.iinfo(torch.int64).max
    return rows


@dataclass(frozen=True)
class RowKey:
    """What the host knows of a row: its tag, dtype, elements in the row, how often each counts, and width."""

    tag: object
    dtype: str
    numel: int
    times: int
    width: Width


def flat_parts(tensor: torch.Tensor) -> tuple[Width, int, list[torch.Tensor]]:
    """(width, times, views): strided views that hold the elements of `tensor` once, `times` for each."""
    parts = dense_parts(tensor)
    width = W32
    for part in parts:
        if part.dtype not in BYTE_DTYPES:
            width = width_of(part.dtype)
    squeezed = [squeeze_strides(part) for part in parts]
    if len({times for _, times in squeezed}) > 1:
        return width, 1, list(parts)
    return width, squeezed[0][1] if squeezed else 1, [view for view, _ in squeezed]


def elements(views: list[torch.Tensor]) -> int:
    """Elements held by the views; packed float4 bytes hold two."""
    return sum(v.numel() * elements_per_byte(v.dtype) for v in views)


def contiguous_pieces(view: torch.Tensor, width: Width) -> Iterator[torch.Tensor]:
    """The view as flat contiguous tensors of the width's dtype; what already is one is not copied."""
    if view.dtype is width.dtype and view.is_contiguous() and not view.is_neg():
        yield from torch.split(view.view(-1), PIECE)
        return
    for piece in pieces(view, PIECE):
        if view.dtype in BYTE_DTYPES:
            table = torch.from_numpy(_pair_table(view.dtype)).to(view.device, non_blocking=True)
            yield table[piece.view(torch.uint8).reshape(-1).long()].reshape(-1)
        else:
            yield piece.to(width.dtype).resolve_neg().contiguous().view(-1)


def _pair_table(dtype: torch.dtype) -> NDArray[np.float32]:
    values = code_values(dtype).astype(np.float32)
    if elements_per_byte(dtype) == 1:
        return values
    low, high = np.arange(256) & 15, np.arange(256) >> 4
    return np.stack((values[low], values[high]), axis=1)


def add_piece(row: torch.Tensor, x: torch.Tensor, width: Width) -> None:
    """Add the elements of flat contiguous `x` to an int64[ROW] row; torch operations only, none waits."""
    bits = x.view(torch.int32 if width.bits == 32 else torch.int64)
    mag = bits & int(width.magnitude)
    finite = mag < width.inf
    index = mag >> int(width.mantissa)
    if width.rebase:
        index = (index - width.rebase).clamp_(0, HIST_BINS - 1)
    # Lanes spread the additions to one bin over several addresses: on a GPU they are atomic and would queue.
    lane = torch.arange(x.numel(), dtype=torch.int64, device=x.device).remainder_(_LANES)
    index = index.to(torch.int64).add_(lane, alpha=HIST_BINS)
    lanes = torch.zeros(_LANES * HIST_BINS, dtype=torch.int64, device=x.device)
    lanes.scatter_add_(0, index, torch.ones_like(index))
    row[:HIST_BINS] += lanes.view(_LANES, HIST_BINS).sum(0)
    counters = (
        mag == 0, mag > width.inf, bits == width.inf, (mag == width.inf) & (bits < 0),
        finite & (mag >= width.bits_65520),
    )  # fmt: skip
    row[ZEROS : GE_65520 + 1] += torch.stack([c.sum(dtype=torch.int64) for c in counters])
    mag = mag.to(torch.int64)
    largest = torch.where(finite, mag, -1).max()
    smallest = torch.where(finite & (mag > 0), mag, torch.iinfo(torch.int64).max).min()
    row[AMAX] = torch.maximum(row[AMAX], largest)
    row[AMIN] = torch.minimum(row[AMIN], smallest)
    wide = torch.where(finite, x, 0).to(torch.float64)
    sums = torch.stack((wide.sum(), (wide * wide).sum(), wide.abs().sum()))
    row.view(torch.float64)[SUMS : SUMS + 3] += sums


def add_views(row: torch.Tensor, views: list[torch.Tensor], width: Width) -> None:
    """Add every element of the views to the row."""
    for view in views:
        if view.numel():
            for piece in contiguous_pieces(view, width):
                add_piece(row, piece, width)


def decode(row: NDArray[np.int64], key: RowKey) -> ExponentHistogram:
    """The histogram of a row that has reached the host."""
    zeros, nan, posinf, neginf, ge_65520 = (int(c) for c in row[ZEROS : GE_65520 + 1])
    counts = row[:HIST_BINS].copy()
    counts[-1] -= nan + posinf + neginf
    counts[0] = key.numel - nan - posinf - neginf - zeros - int(counts[1:].sum())
    total, squares, absolute = (float(s) for s in row[SUMS : SUMS + 3].view(np.float64))
    nonzero = bool(counts.any())
    n = key.times
    return ExponentHistogram(
        counts * n, key.numel * n, zeros * n, nan * n, posinf * n, neginf * n, ge_65520 * n,
        key.width.decode(int(row[AMAX])) if nonzero or zeros else None,
        key.width.decode(int(row[AMIN])) if nonzero else None,
        total * n, squares * n, absolute * n, key.dtype,
    )  # fmt: skip
