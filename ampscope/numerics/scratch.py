"""Per-thread buffers into which tensors are copied chunk by chunk, and how IEEE 754 bits are taken apart.

The `copy_` in `loaded` is the only operation of the CPU path that touches the caller's tensor. It must stay
so: `Tensor.numpy()` on the tensor itself would make its storage unresizable, and break FSDP.
"""

from __future__ import annotations

import math
import struct
import threading
from collections.abc import Iterator

import numpy as np
import torch

from .layout import pieces, squeeze_strides

CHUNK = 262144
"""Elements per chunk: large enough that call overhead fades (half as many take 5 % longer), small enough for
buffers of a few MB, a share of the last cache."""

SMALL = 10_000
"""Below this many elements NumPy's cheaper calls win over torch's cheaper elements (and its dot uses one thread)."""

NARROW = frozenset((torch.float32, torch.float16, torch.bfloat16, torch.int16))
"""dtypes that float32 holds exactly."""

WIDE = frozenset((torch.float64, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64))
"""dtypes that are read through float64."""

_CACHED_SHAPES = 256


class Width:
    """Masks and shifts for the unsigned view of one IEEE 754 width."""

    def __init__(self, bits: int, dtype: torch.dtype, mantissa: int, rebase: int) -> None:
        self.bits = bits
        self.dtype = dtype
        self.uint: type[np.unsignedinteger] = np.uint32 if bits == 32 else np.uint64
        self.signed: type[np.signedinteger] = np.int32 if bits == 32 else np.int64
        self.mantissa = self.uint(mantissa)
        self.rebase = rebase
        """subtracted from the exponent field to get the bin index, which is then clipped to 0..255."""
        magnitude = (1 << (bits - 1)) - 1
        self.magnitude = self.uint(magnitude)
        self.inf = magnitude >> mantissa << mantissa
        """bits of +inf; larger magnitudes are NaN."""
        self.neginf = self.inf | (magnitude + 1)
        self.bits_65520 = self.encode(65520.0)

    def encode(self, x: float) -> int:
        """Bits of x."""
        return int.from_bytes(struct.pack("<f" if self.bits == 32 else "<d", x), "little")

    def decode(self, magnitude: int) -> float:
        """Value of the bits of a finite magnitude, by integers: right also while denormals are flushed."""
        if self.bits == 64:
            return float(struct.unpack("<d", magnitude.to_bytes(8, "little"))[0])
        exponent, mantissa = magnitude >> 23, magnitude & 0x7FFFFF
        return math.ldexp(mantissa | (0x800000 if exponent else 0), max(exponent, 1) - 150)


W32 = Width(32, torch.float32, 23, 0)
W64 = Width(64, torch.float64, 52, 1023 - 127)


def width_of(dtype: torch.dtype) -> Width:
    """float32 where it holds the dtype exactly, else float64 (integers beyond 2^53 round there)."""
    if dtype in NARROW:
        return W32
    if dtype in WIDE:
        return W64
    raise ValueError(f"values of {dtype} cannot be read as numbers.")


class Views:
    """As much of every buffer of a Scratch as a tensor of one shape fills, as torch (t_) and NumPy views of the
    same memory; into_load and into_code have its shape."""

    def __init__(self, s: Scratch, shape: torch.Size) -> None:
        self.n = n = shape.numel()
        self.width = s.width
        self.t_load, self.t_code, self.t_wide = s.load[:n], s.code[:n], s.wide[:n]
        self.into_load, self.into_code = self.t_load.view(shape), self.t_code.view(shape)
        self.load, self.code, self.wide = self.t_load.numpy(), self.t_code.numpy(), self.t_wide.numpy()
        self.bits = self.load.view(s.width.uint)
        self.magnitude, self.where, self.ones = s.magnitude[:n], s.where[:n], s.ones[:n]
        # Work space is not needed at the same time as the sums: the same memory keeps the cache warm.
        self.work = self.wide.view(s.width.uint)[:n]
        self.signed_work = self.work.view(s.width.signed)
        # Codes two by two; bincount knows no uint16.
        self.code_pairs, self.pairs = (
            self.code[: n - n % 2].view(np.uint16),
            self.wide.view(np.int32)[: n // 2],
        )
        self.t_pairs = torch.from_numpy(self.pairs)


class Scratch:
    """Buffers of one width for `room` elements: of a chunk about 5 MB (7 MB for float64)."""

    def __init__(self, width: Width, room: int = CHUNK) -> None:
        self.width = width
        # Made as normal tensors: one made under the user's inference_mode could not be written outside it.
        with torch.inference_mode(mode=False):
            self.load = torch.empty(room, dtype=width.dtype, device="cpu")
            self.code = torch.empty(room, dtype=torch.uint8, device="cpu")
            self.wide = torch.empty(room, dtype=torch.float64, device="cpu")
        self.magnitude = np.empty(room, width.uint)
        self.ones = np.ones(SMALL)
        self.where = np.empty(room, np.bool_)
        self._views: dict[torch.Size, Views] = {}

    def views(self, shape: torch.Size) -> Views:
        """Views for one shape; a model's tensors have few shapes, so they are kept."""
        found = self._views.get(shape)
        if found is None:
            if len(self._views) >= _CACHED_SHAPES:
                self._views.clear()
            with torch.inference_mode(mode=False):
                found = self._views[shape] = Views(self, shape)
        return found


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


def loaded(x: torch.Tensor) -> Iterator[tuple[Views, int]]:
    """Copy a strided tensor chunk by chunk into the buffers of its width.

    Yields (views of the chunk, how often each of its elements occurs in `x`)."""
    buffers = scratch(width_of(x.dtype))
    for piece, times in chunks_of(x):
        views = buffers.views(piece.shape)
        views.into_load.copy_(piece)
        yield views, times


def loaded_codes(x: torch.Tensor) -> Iterator[tuple[Views, int]]:
    """The same for the raw bytes of a tensor of one-byte elements: they are in `code`."""
    buffers = scratch(W32)
    for piece, times in chunks_of(x.view(torch.uint8)):
        views = buffers.views(piece.shape)
        views.into_code.copy_(piece)
        yield views, times


def loaded_halves(x: torch.Tensor) -> Iterator[torch.Tensor]:
    """The same for the codes of a tensor of two-byte elements, none of them expanded: int32, as bincount knows no
    uint16."""
    codes = scratch(W32).wide.view(torch.int32)
    for piece, _ in chunks_of(x.view(torch.uint16), len(codes)):
        into = codes[: piece.numel()]
        into.view(piece.shape).copy_(piece)
        yield into


def chunks_of(x: torch.Tensor, limit: int = CHUNK) -> Iterator[tuple[torch.Tensor, int]]:
    """Pieces of at most `limit` elements that cover strided `x`, with their multiplicity."""
    n = x.numel()
    if n == 0:
        return
    if x.is_contiguous():
        if n <= limit:
            yield x, 1
        else:
            for piece in torch.split(x.view(-1), limit):
                yield piece, 1
        return
    view, times = squeeze_strides(x)
    for piece in pieces(view, limit):
        yield piece, times
