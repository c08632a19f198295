"""The Triton kernel that fills rows of `device`: one launch over many tensors, each element read once.

Importing this module imports Triton; only `rows` does so, and only for CUDA tensors.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .device import AMAX, AMIN, GE_65520, NAN, NEGINF, POSINF, ROW, SUMS, ZEROS
from .scratch import W32, W64

BLOCK = 1024
WARPS = 4
"""1024 elements on 4 warps: 168 registers a thread and no spill on sm_80 and sm_90."""

PROGRAMS = 512
"""At most this many programs share one tensor; each walks over every PROGRAMS-th block."""

DTYPES = {
    torch.float32: tl.float32,
    torch.float16: tl.float16,
    torch.bfloat16: tl.bfloat16,
    torch.float64: tl.float64,
}

_ZEROS, _NAN, _GE = tl.constexpr(ZEROS), tl.constexpr(NAN), tl.constexpr(GE_65520)
_POSINF, _NEGINF = tl.constexpr(POSINF), tl.constexpr(NEGINF)
_AMAX, _AMIN = tl.constexpr(AMAX), tl.constexpr(AMIN)
_SUMS, _ROW = tl.constexpr(SUMS), tl.constexpr(ROW)
_MAG32, _INF32 = tl.constexpr(int(W32.magnitude)), tl.constexpr(W32.inf)
_MAG64, _INF64 = tl.constexpr(int(W64.magnitude)), tl.constexpr(W64.inf)
_BIG32, _BIG64 = tl.constexpr(W32.bits_65520), tl.constexpr(W64.bits_65520)
_REBASE = tl.constexpr(W64.rebase)
_NONE = tl.constexpr(2**63 - 1)


@triton.jit  # type: ignore[untyped-decorator]
def _take_apart(x: tl.tensor, WIDE: tl.constexpr) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    if WIDE:
        bits = x.to(tl.int64, bitcast=True)
        mag = bits & _MAG64
        index = tl.minimum(tl.maximum((mag >> 52) - _REBASE, 0), 255).to(tl.int32)
    else:
        if x.dtype == tl.bfloat16:
            # By bits: a conversion instruction may flush subnormals (Triton's interpreter gets them wrong).
            x = (x.to(tl.uint16, bitcast=True).to(tl.uint32) << 16).to(tl.float32, bitcast=True)
        else:
            x = x.to(tl.float32)
        bits = x.to(tl.int32, bitcast=True)
        mag = bits & _MAG32
        index = mag >> 23
    return x, bits, mag, index


@triton.jit  # type: ignore[untyped-decorator]
def _add(
    ptr: tl.tensor,
    n: tl.tensor,
    row: tl.tensor,
    part: tl.tensor,
    parts: tl.tensor,
    BLOCK: tl.constexpr,
    WIDE: tl.constexpr,
) -> None:
    counts = tl.zeros([256], tl.int64)
    zeros = tl.zeros([BLOCK], tl.int32)
    nan = tl.zeros([BLOCK], tl.int32)
    posinf = tl.zeros([BLOCK], tl.int32)
    neginf = tl.zeros([BLOCK], tl.int32)
    big = tl.zeros([BLOCK], tl.int32)
    none: tl.constexpr = _NONE if WIDE else _MAG32
    if WIDE:
        amax = tl.full([BLOCK], -1, tl.int64)
        amin = tl.full([BLOCK], none, tl.int64)
    else:
        amax = tl.full([BLOCK], -1, tl.int32)
        amin = tl.full([BLOCK], none, tl.int32)
    total = tl.zeros([BLOCK], tl.float64)
    squares = tl.zeros([BLOCK], tl.float64)
    absolute = tl.zeros([BLOCK], tl.float64)
    for start in range(part * BLOCK, n, parts * BLOCK):
        at = start + tl.arange(0, BLOCK).to(tl.int64)
        inside = at < n
        x = tl.load(ptr + at, mask=inside, other=0.0)
        x, bits, mag, index = _take_apart(x, WIDE)
        inf = _INF64 if WIDE else _INF32
        large = mag >= (_BIG64 if WIDE else _BIG32)
        counts += tl.histogram(index, 256).to(tl.int64)
        finite = mag < inf
        zeros += ((mag == 0) & inside).to(tl.int32)
        nan += (mag > inf).to(tl.int32)
        posinf += (bits == inf).to(tl.int32)
        neginf += ((mag == inf) & (bits < 0)).to(tl.int32)
        big += (large & finite).to(tl.int32)
        amax = tl.maximum(amax, tl.where(finite & inside, mag, -1))
        amin = tl.minimum(amin, tl.where(finite & (mag > 0), mag, none))
        value = tl.where(finite, x, 0.0).to(tl.float64)
        total += value
        squares += value * value
        absolute += tl.abs(value)
    tl.atomic_add(row + tl.arange(0, 256), counts)
    tl.atomic_add(row + _ZEROS, tl.sum(zeros.to(tl.int64)))
    tl.atomic_add(row + _NAN, tl.sum(nan.to(tl.int64)))
    tl.atomic_add(row + _POSINF, tl.sum(posinf.to(tl.int64)))
    tl.atomic_add(row + _NEGINF, tl.sum(neginf.to(tl.int64)))
    tl.atomic_add(row + _GE, tl.sum(big.to(tl.int64)))
    tl.atomic_max(row + _AMAX, tl.max(amax).to(tl.int64))
    smallest = tl.min(amin)
    tl.atomic_min(row + _AMIN, tl.where(smallest == none, _NONE, smallest.to(tl.int64)))
    sums = (row + _SUMS).to(tl.pointer_type(tl.float64))
    tl.atomic_add(sums, tl.sum(total))
    tl.atomic_add(sums + 1, tl.sum(squares))
    tl.atomic_add(sums + 2, tl.sum(absolute))


@triton.jit  # type: ignore[untyped-decorator]
def _one(ptr: tl.tensor, n: tl.tensor, row: tl.tensor, BLOCK: tl.constexpr, WIDE: tl.constexpr) -> None:
    _add(ptr, n, row, tl.program_id(0).to(tl.int64), tl.num_programs(0), BLOCK, WIDE)


@triton.jit  # type: ignore[untyped-decorator]
def _many(
    table: tl.tensor, rows: tl.tensor, BLOCK: tl.constexpr, DTYPE: tl.constexpr, WIDE: tl.constexpr
) -> None:
    entry = table + tl.program_id(1) * 3
    ptr = tl.load(entry).to(tl.pointer_type(DTYPE))
    row = rows + tl.load(entry + 2) * _ROW
    _add(ptr, tl.load(entry + 1), row, tl.program_id(0).to(tl.int64), tl.num_programs(0), BLOCK, WIDE)


def _programs(n: int) -> int:
    return max(1, min(PROGRAMS, -(-n // BLOCK)))


def add_one(row: torch.Tensor, x: torch.Tensor) -> None:
    """Add flat contiguous `x` (a dtype of DTYPES) to an int64[ROW] row on the current stream."""
    wide = x.dtype is torch.float64
    _one[(_programs(x.numel()),)](x, x.numel(), row, BLOCK=BLOCK, WIDE=wide, num_warps=WARPS)


def add_many(rows: torch.Tensor, xs: list[torch.Tensor], indices: list[int]) -> None:
    """Add each flat contiguous tensor of one dtype to its row of int64[capacity, ROW]: one launch."""
    entries = [[x.data_ptr(), x.numel(), i] for x, i in zip(xs, indices, strict=True)]
    table = torch.tensor(entries, dtype=torch.int64, device="cpu", pin_memory=rows.is_cuda)
    table = table.to(rows.device, non_blocking=True)
    dtype = xs[0].dtype
    grid = (_programs(max(x.numel() for x in xs)), len(xs))
    wide = dtype is torch.float64
    _many[grid](table, rows, BLOCK=BLOCK, DTYPE=DTYPES[dtype], WIDE=wide, num_warps=WARPS)
