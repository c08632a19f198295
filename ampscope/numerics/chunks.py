"""CPU reading of tensors in cache-sized chunks: the inner loops behind the exponent histogram.

The only operation that touches the caller's tensor is one `copy_` per chunk into a scratch buffer of this
thread; everything after that is arithmetic on the bits in NumPy, which no autograd mode, dispatch mode,
default dtype or flush-denormal setting can reach.
"""

from __future__ import annotations

import math
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from .binades import HIST_BINS, ExponentHistogram
from .codes import BYTE_DTYPES, code_bins, code_values, per_value
from .layout import dense_parts, pieces, squeeze_strides

CHUNK = 32768
"""Elements per chunk: scratch buffers stay in the second-level cache, and torch starts no threads."""

NARROW = (torch.float32, torch.float16, torch.bfloat16, torch.int16)
"""dtypes that float32 holds exactly."""

_SMALL = 2048


@dataclass(frozen=True)
class Width:
    """How one IEEE 754 width is taken apart: masks and shifts on the unsigned view of its bits."""

    torch_float: torch.dtype
    uint: type[np.unsignedinteger]
    mantissa: int
    rebase: int
    """subtracted from the exponent field to get the bin index (then clipped to 0..255)."""

    @property
    def bits(self) -> int:
        return 8 * np.dtype(self.uint).itemsize

    @property
    def magnitude(self) -> int:
        return (1 << (self.bits - 1)) - 1

    @property
    def inf(self) -> int:
        """Bits of +inf; larger magnitudes are NaN."""
        return self.magnitude >> self.mantissa << self.mantissa

    def encode(self, x: float) -> int:
        code = struct.pack("<f", x) if self.bits == 32 else struct.pack("<d", x)
        return int.from_bytes(code, "little")

    def decode(self, magnitude_bits: int) -> float:
        """Value of the bits of a finite magnitude, by integers: right also while denormals are flushed."""
        if self.bits == 64:
            return float(struct.unpack("<d", magnitude_bits.to_bytes(8, "little"))[0])
        exponent, mantissa = magnitude_bits >> 23, magnitude_bits & 0x7FFFFF
        return math.ldexp(mantissa | (0x800000 if exponent else 0), max(exponent, 1) - 150)


W32 = Width(torch.float32, np.uint32, 23, 0)
W64 = Width(torch.float64, np.uint64, 52, 1023 - 127)


class Scratch:
    """Buffers of one thread for one width, about 1 MB at most. Views of `n` elements come by `first(n)`."""

    def __init__(self, width: Width) -> None:
        self.width = width
        # Made as normal tensors: one made under the user's inference_mode could not be written outside it.
        with torch.inference_mode(mode=False):
            self.load = torch.empty(CHUNK, dtype=width.torch_float, device="cpu")
            self.code = torch.empty(CHUNK, dtype=torch.uint8, device="cpu")
            self.wide = torch.empty(CHUNK, dtype=torch.float64, device="cpu")
        self.np_load = self.load.numpy()
        self.np_code = self.code.numpy()
        self.np_wide = self.wide.numpy()
        self.magnitude = np.empty(CHUNK, width.uint)
        self.work = np.empty(CHUNK, width.uint)
        self.where = np.empty(CHUNK, np.bool_)


class _PerThread(threading.local):
    def __init__(self) -> None:
        self.by_bits: dict[int, Scratch] = {}


_per_thread = _PerThread()


def scratch(width: Width) -> Scratch:
    """This thread's buffers for `width`."""
    found = _per_thread.by_bits.get(width.bits)
    if found is None:
        found = _per_thread.by_bits[width.bits] = Scratch(width)
    return found


def width_of(dtype: torch.dtype) -> Width:
    """float32 where it holds the dtype exactly, else float64 (integers beyond 2^53 round there)."""
    return W32 if dtype in NARROW else W64


def loaded(x: torch.Tensor, into: torch.Tensor) -> Iterator[tuple[int, int]]:
    """Copy strided `x` chunk by chunk into `into`; yields (elements now in the buffer, times each counts)."""
    view, times = squeeze_strides(x)
    for piece in pieces(view, CHUNK):
        n = piece.numel()
        target = into if n == CHUNK else into[:n]
        target.view(piece.shape).copy_(piece)
        yield n, times


@dataclass
class Tally:
    """Mutable sums of the histogram while chunks come in."""

    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(HIST_BINS, np.int64))
    numel: int = 0
    zeros: int = 0
    nan: int = 0
    posinf: int = 0
    neginf: int = 0
    ge_65520: int = 0
    amax: float | None = None
    amin: float | None = None
    sum: float = 0.0
    sumsq: float = 0.0
    sumabs: float = 0.0

    def extremes(self, largest: float, smallest: float | None) -> None:
        self.amax = largest if self.amax is None else max(self.amax, largest)
        if smallest is not None:
            self.amin = smallest if self.amin is None else min(self.amin, smallest)

    def freeze(self, dtype: str) -> ExponentHistogram:
        return ExponentHistogram(
            self.counts, self.numel, self.zeros, self.nan, self.posinf, self.neginf, self.ge_65520,
            self.amax, self.amin, self.sum, self.sumsq, self.sumabs, dtype,
        )  # fmt: skip


def tally(tensor: torch.Tensor) -> Tally:
    """Read every element of a CPU tensor once."""
    total = Tally()
    for part in dense_parts(tensor):
        if part.dtype in BYTE_DTYPES:
            _tally_codes(part, total)
            continue
        width = width_of(part.dtype)
        buffers = scratch(width)
        for n, times in loaded(part, buffers.load):
            _tally_chunk(buffers, n, times, total)
    return total


def byte_counts(part: torch.Tensor) -> NDArray[np.int64]:
    """int64[256]: occurrences of each code of a tensor of one-byte elements."""
    s = scratch(W32)
    counts = np.zeros(HIST_BINS, np.int64)
    for n, times in loaded(part.view(torch.uint8), s.code):
        counts += times * count_codes(s.code, s.np_code, n)
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
    t.extremes(float(found.max()), float(found[found > 0].min()) if (found > 0).any() else None)
    t.sum += float(times @ values[there])
    t.sumsq += float(times @ found**2)
    t.sumabs += float(times @ found)


def _tally_chunk(s: Scratch, n: int, times: int, t: Tally) -> None:
    w = s.width
    largest, bad = set_magnitude(s, n)
    mag = s.magnitude[:n]
    smallest = int(mag.min())
    if bad is not None:
        t.nan += times * bad.nan
        t.posinf += times * bad.posinf
        t.neginf += times * bad.neginf
    lost = 0 if bad is None else bad.total
    counts = _binade_counts(s, n)
    zeros = 0
    if smallest == 0:
        zeros = int(np.count_nonzero(np.equal(mag, 0, out=s.where[:n])))
        smallest = int(np.subtract(mag, w.uint(1), out=s.work[:n]).min()) + 1
    counts[0] -= zeros
    if largest >= w.encode(65520.0):
        t.ge_65520 += times * int(np.count_nonzero(mag >= w.uint(w.encode(65520.0))))
    t.counts += counts if times == 1 else counts * times
    t.numel += times * n
    t.zeros += times * (zeros - lost)
    if lost < n:
        t.extremes(w.decode(largest), w.decode(smallest) if zeros < n else None)
    _add_sums(s, n, times, t)


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


def set_magnitude(s: Scratch, n: int) -> tuple[int, NonFinite | None]:
    """Put the bits of |x| into s.magnitude[:n]; returns the largest finite one, and the non-finite elements,
    which are 0 in the buffers from then on."""
    w = s.width
    bits = s.np_load[:n].view(w.uint)
    mag = np.bitwise_and(bits, w.uint(w.magnitude), out=s.magnitude[:n])
    largest = int(mag.max())
    if largest < w.inf:
        return largest, None
    where = np.flatnonzero(np.greater_equal(mag, w.uint(w.inf), out=s.where[:n]))
    found = bits[where]
    posinf = int(np.count_nonzero(found == w.uint(w.inf)))
    neginf = int(np.count_nonzero(found == w.uint(w.inf | (w.magnitude + 1))))
    bits[where] = 0
    mag[where] = 0
    return int(mag.max()), NonFinite(where, len(where) - posinf - neginf, posinf, neginf)


def _binade_counts(s: Scratch, n: int) -> NDArray[np.int64]:
    w = s.width
    field_ = np.right_shift(s.magnitude[:n], w.uint(w.mantissa), out=s.work[:n])
    if w.rebase:
        signed = field_.view(np.int64)
        np.clip(np.subtract(signed, w.rebase, out=signed), 0, HIST_BINS - 1, out=signed)
    np.copyto(s.np_code[:n], field_, casting="unsafe")
    return count_codes(s.code, s.np_code, n)


def count_codes(code: torch.Tensor, np_code: NDArray[np.uint8], n: int) -> NDArray[np.int64]:
    """Occurrences of each byte among the first n: torch is faster, NumPy has less overhead."""
    if n < _SMALL:
        return np.bincount(np_code[:n], minlength=HIST_BINS).astype(np.int64, copy=False)
    return torch.bincount(code[:n], minlength=HIST_BINS).numpy()


def _add_sums(s: Scratch, n: int, times: int, t: Tally) -> None:
    # torch sums, not NumPy's: float64 overflow must not raise a RuntimeWarning in the user's process.
    wide = s.wide if n == CHUNK else s.wide[:n]
    np.copyto(s.np_wide[:n], s.np_load[:n])
    t.sum += times * float(wide.sum())
    t.sumsq += times * float(torch.dot(wide, wide))
    np.abs(s.np_wide[:n], out=s.np_wide[:n])
    t.sumabs += times * float(wide.sum())
