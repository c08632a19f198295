"""CPU reading of tensors into a histogram: the inner loop over bounded chunks.

Works on the bits of the copied chunk in NumPy, which no autograd mode, dispatch mode, default dtype or
flush-denormal setting can reach.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from .binades import HIST_BINS, HIST_MIN
from .codes import BYTE_DTYPES, code_bins, code_values, per_value
from .counters import Tally
from .halves import in_codes, tally_halves
from .layout import dense_parts
from .scratch import SMALL, Views, loaded, loaded_codes

_PAIRED = 1 << 17
"""From this many on, a table of pairs of codes costs less than it saves."""


def tally(tensor: torch.Tensor) -> Tally:
    """Read every element of a CPU tensor once."""
    total = Tally()
    for part in dense_parts(tensor):
        if part.dtype in BYTE_DTYPES:
            _tally_codes(part, total)
        elif in_codes(part):
            tally_halves(part, total)
        else:
            for views, times in loaded(part):
                _tally_chunk(views, times, total)
    return total


def byte_counts(part: torch.Tensor) -> NDArray[np.int64]:
    """int64[256]: occurrences of each code of a tensor of one-byte elements."""
    counts = np.zeros(HIST_BINS, np.int64)
    for views, times in loaded_codes(part):
        counts += times * _count_codes(views)
    return counts


def _tally_codes(part: torch.Tensor, t: Tally) -> None:
    dtype = part.dtype
    counts, values, bins = per_value(byte_counts(part), dtype), code_values(dtype), code_bins(dtype)
    t.numel += int(counts.sum())
    t.zeros += int(counts[values == 0].sum())
    t.nan += int(counts[np.isnan(values)].sum())
    t.posinf += int(counts[values == np.inf].sum())
    t.neginf += int(counts[values == -np.inf].sum())
    np.add.at(t.counts, bins[bins >= 0], counts[bins >= 0])
    there = np.isfinite(values) & (counts > 0)
    if not there.any():
        return
    times, found = counts[there], np.abs(values[there])
    t.ge_65520 += int(times[found >= 65520.0].sum())
    t.amax = float(found.max())
    t.amin = float(found[found > 0].min()) if (found > 0).any() else None
    t.sum += float(times @ values[there])
    t.sumsq += float(times @ found**2)
    t.sumabs += float(times @ found)


def _tally_chunk(v: Views, times: int, t: Tally) -> None:
    w, n = v.width, v.n
    largest, bad = set_magnitude(v)
    lost = 0
    if bad is not None:
        lost = bad.total
        t.nan += times * bad.nan
        t.posinf += times * bad.posinf
        t.neginf += times * bad.neginf
    counts = _binade_counts(v, largest)
    zeros = int(np.count_nonzero(np.equal(v.magnitude, 0, out=v.where))) if counts[0] else 0
    if zeros:
        counts[0] -= zeros
    t.numel += times * n
    t.zeros += times * (zeros - lost)
    t.counts += counts if times == 1 else counts * times
    if lost == n:
        return
    if largest >= w.bits_65520:
        t.ge_65520 += times * int(np.count_nonzero(v.magnitude >= w.uint(w.bits_65520)))
    amax = w.decode(largest)
    t.amax = amax if t.amax is None else max(t.amax, amax)
    # The bins say whether this chunk can lower the minimum at all; mostly it cannot.
    if zeros < n and (t.amin is None or t.amin >= _floor_of_lowest(counts)):
        smallest = (
            int(np.minimum.reduce(np.subtract(v.magnitude, w.uint(1), out=v.work))) + 1
            if zeros
            else int(np.minimum.reduce(v.magnitude))
        )
        amin = w.decode(smallest)
        t.amin = amin if t.amin is None else min(t.amin, amin)
    _add_sums(v, times, t)


def _floor_of_lowest(counts: NDArray[np.int64]) -> float:
    lowest = int((counts != 0).argmax())
    return 0.0 if lowest == 0 else 2.0 ** (lowest + HIST_MIN)


@dataclass(frozen=True)
class NonFinite:
    """Non-finite elements of one chunk; where: their indices."""

    where: NDArray[np.intp]
    nan: int
    posinf: int
    neginf: int

    @property
    def total(self) -> int:
        return self.nan + self.posinf + self.neginf


def set_magnitude(v: Views) -> tuple[int, NonFinite | None]:
    """Put the bits of |x| into v.magnitude; returns the largest finite one, and the non-finite elements,
    which are 0 in the buffers from then on."""
    w = v.width
    mag = np.bitwise_and(v.bits, w.magnitude, out=v.magnitude)
    largest = int(np.maximum.reduce(mag))
    if largest < w.inf:
        return largest, None
    where = np.flatnonzero(np.greater_equal(mag, w.uint(w.inf), out=v.where))
    found = v.bits[where]
    posinf = int(np.count_nonzero(found == w.uint(w.inf)))
    neginf = int(np.count_nonzero(found == w.uint(w.neginf)))
    v.bits[where] = 0
    mag[where] = 0
    return int(np.maximum.reduce(mag)), NonFinite(where, len(where) - posinf - neginf, posinf, neginf)


def _binade_counts(v: Views, largest: int) -> NDArray[np.int64]:
    """Elements of each bin, zeros in the first; largest: that of v.magnitude."""
    w = v.width
    np.right_shift(v.magnitude, w.mantissa, out=v.work)
    if w.rebase:
        np.clip(np.subtract(v.signed_work, w.rebase, out=v.signed_work), 0, HIST_BINS - 1, out=v.signed_work)
    if v.n < SMALL:
        return np.bincount(v.signed_work, minlength=HIST_BINS)
    np.copyto(v.code, v.work, casting="unsafe")
    if v.n < _PAIRED:
        return _count_codes(v)
    return _count_pairs(v, min(max((largest >> int(w.mantissa)) - w.rebase, 0), HIST_BINS - 1))


def _count_pairs(v: Views, top: int) -> NDArray[np.int64]:
    """Counts of v.code, of which `top` is the largest. Two neighbours are one index into a table, so that there are
    half as many steps, and a run of equal codes (zeros, mostly) waits half as often for the counter it has just
    written."""
    np.copyto(v.pairs, v.code_pairs)
    rows = top + 1
    table = torch.bincount(v.t_pairs, minlength=rows * HIST_BINS).numpy().reshape(rows, HIST_BINS)[:, :rows]
    counts = np.zeros(HIST_BINS, np.int64)
    counts[:rows] = np.add.reduce(table, axis=0) + np.add.reduce(table, axis=1)
    if v.n % 2:
        counts[v.code[-1]] += 1
    return counts


def _count_codes(v: Views) -> NDArray[np.int64]:
    if v.n < SMALL:
        return np.bincount(v.code, minlength=HIST_BINS)
    return torch.bincount(v.t_code, minlength=HIST_BINS).numpy()


def _add_sums(v: Views, times: int, t: Tally) -> None:
    np.copyto(v.wide, v.load)
    if v.n < SMALL and v.width.bits == 32:
        # np.dot is called at half the cost of np.add.reduce.
        total, squares = np.dot(v.wide, v.ones), np.dot(v.wide, v.wide)
        absolute = np.dot(np.abs(v.wide, out=v.wide), v.ones)
    else:
        # torch, not NumPy: float64 overflow must not raise a RuntimeWarning in the user's process.
        total, squares = v.t_wide.sum(), torch.dot(v.t_wide, v.t_wide)
        absolute = v.t_wide.abs_().sum()
    t.sum += times * float(total)
    t.sumsq += times * float(squares)
    t.sumabs += times * float(absolute)
