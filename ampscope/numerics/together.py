"""Small CPU tensors read together: each is copied when its turn comes, and all are counted in one pass.

A tensor of a hundred elements costs as much as the calls that read it; side by side they share these.
"""

from __future__ import annotations

import threading

import numpy as np
import torch
from numpy.typing import NDArray

from .aside import MOST as MIDDLE
from .aside import Aside
from .binades import HIST_BINS
from .chunks import tally
from .counters import Tally, Waiting
from .layout import dense_parts
from .scratch import NARROW, W32, Scratch, Views, scratch

FEW = 2048
"""Most elements of a tensor that gains by it."""

ROOM = 1 << 16
"""Elements of all that wait."""

MOST = 256
"""Tensors that wait: each has a row of 256 bins in the count."""


class Together:
    """Tensors that wait to be counted, of any thread; about 2 MB. Those of middle size wait `Aside`."""

    def __init__(self) -> None:
        self._buffers = Scratch(W32, ROOM)
        self._load = self._buffers.load.numpy()
        self._squares = np.empty(ROOM)
        self._starts: list[int] = []
        self._aside = Aside()
        self._end = 0
        self._waiting: list[Waiting] = []
        self._changing = threading.RLock()

    def take(self, x: torch.Tensor) -> Waiting | None:
        """Copy the elements as they are now; None when the tensor is to be read alone. Raises ValueError for
        tensors without data."""
        if x.layout is not torch.strided or x.numel() > MIDDLE:
            return None
        parts = dense_parts(x)
        if len(parts) != 1 or parts[0].dtype not in NARROW or not 0 < parts[0].numel() <= MIDDLE:
            return None
        with self._changing:
            if parts[0].numel() > FEW:
                return self._aside.take(parts[0], x.dtype)
            if self._end + parts[0].numel() > ROOM or len(self._starts) == MOST:
                self._count()
            # By way of kept views: to make a view of a tensor costs more than to copy a hundred elements.
            v = scratch(W32).views(parts[0].shape)
            v.into_load.copy_(parts[0])
            self._starts.append(self._end)
            self._load[self._end : self._end + v.n] = v.load
            self._end += v.n
            found = Waiting(x.dtype)
            self._waiting.append(found)
        return found

    def count(self) -> None:
        """Give all that wait their tally."""
        with self._changing:
            self._count()
            self._aside.count()

    def _count(self) -> None:
        waiting, starts, n = self._waiting, self._starts, self._end
        self._waiting, self._starts, self._end = [], [], 0
        if not waiting:
            return
        tallies = _tallies(Views(self._buffers, torch.Size((n,))), np.array(starts), self._squares)
        for found, counted in zip(waiting, tallies, strict=True):
            found.tally = counted


def _tallies(v: Views, starts: NDArray[np.int64], squares: NDArray[np.float64]) -> list[Tally]:
    w, k = v.width, len(starts)
    sizes = np.diff(starts, append=v.n)
    mag = np.bitwise_and(v.bits, w.magnitude, out=v.magnitude)
    largest = np.maximum.reduceat(mag, starts)
    alone = {}
    for i in np.flatnonzero(largest >= w.inf).tolist():
        # Tensors with NaN or infinity are few. The rest must not meet them: NumPy would warn of their sums.
        here = slice(starts[i], starts[i] + sizes[i])
        alone[i] = tally(v.t_load[here])
        v.load[here] = mag[here] = 0
    np.right_shift(mag, w.mantissa, out=v.work)
    bins = np.repeat(np.arange(0, k * HIST_BINS, HIST_BINS, dtype=np.int32), sizes)
    bins += v.signed_work
    counts = np.bincount(bins, minlength=k * HIST_BINS).reshape(k, HIST_BINS)
    zeros, ge_65520 = np.zeros(k, np.int64), np.zeros(k, np.int64)
    for i in np.flatnonzero(counts[:, 0]).tolist():
        zeros[i] = sizes[i] - np.count_nonzero(mag[starts[i] : starts[i] + sizes[i]])
    for i in np.flatnonzero(largest >= w.bits_65520).tolist():
        ge_65520[i] = np.count_nonzero(mag[starts[i] : starts[i] + sizes[i]] >= w.uint(w.bits_65520))
    counts[:, 0] -= zeros
    # Zeros become the largest, and so do not hide the smallest of the others.
    smallest = np.minimum.reduceat(np.subtract(mag, w.uint(1), out=v.work), starts) + w.uint(1)
    np.copyto(v.wide, v.load)
    total, squares = (
        np.add.reduceat(v.wide, starts),
        np.add.reduceat(np.multiply(v.wide, v.wide, out=squares[: v.n]), starts),
    )
    absolute = np.add.reduceat(np.abs(v.wide, out=v.wide), starts)
    columns = (sizes, zeros, ge_65520, largest, smallest, total, squares, absolute)
    found = []
    for i, (n, none, ge, high, low, s, sq, a) in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
        lowest = w.decode(low) if low else None
        found.append(alone.get(i) or Tally(counts[i], n, none, 0, 0, 0, ge, w.decode(high), lowest, s, sq, a))
    return found
