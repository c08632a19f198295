"""What an optimizer step did to a weight, element by element: absorbed, would-be absorbed, and the ratio of
update to weight. Pure functions of the values before and after; nothing is written to the inputs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray

from .formats import round_to

RATIO_MIN, RATIO_MAX = -127, 127
"""Range of the exponents of `ratio_hist`; what lies beyond is counted in the outermost bin."""

_BLOCK = 65536
_BINS = RATIO_MAX - RATIO_MIN + 1


@dataclass(frozen=True)
class UpdateStats:
    """Counts are elements; the fields are the columns of the trace's `updates` table.

    `unchanged`: gradient finite and nonzero, yet the stored bits did not change: absorbed, if the weight is
    stored in half. `absorbed_fp16`, `absorbed_bf16`: nonzero updates with round(w + dw) == round(w) in that
    format, which a weight stored in it would lose. Norms are Euclidean, in float64. `below_2_11`: moved
    elements with |dw| < 2^-11 |w|; ratio_hist: floor(log2(|dw|/|w|)) of moved elements with w != 0, its first
    bin at ratio_lo (None without any). Both exact for dw in float64.
    """

    numel: int
    grad_nonzero: int | None
    unchanged: int | None
    absorbed_fp16: int
    absorbed_bf16: int
    moved: int
    below_2_11: int
    below_2_8: int
    update_norm: float
    weight_norm: float
    update_amax: float | None
    nonfinite_after: int
    ratio_lo: int | None
    ratio_hist: tuple[int, ...]


@dataclass
class _Sums:
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(_BINS, np.int64))
    grad_nonzero: int = 0
    unchanged: int = 0
    absorbed_fp16: int = 0
    absorbed_bf16: int = 0
    moved: int = 0
    update_sq: float = 0.0
    weight_sq: float = 0.0
    update_amax: float | None = None
    nonfinite_after: int = 0


def compare_update(
    before: torch.Tensor, after: torch.Tensor, grad: torch.Tensor | None = None, lr: float | None = None
) -> UpdateStats:
    """Compare the values of a weight before and after a step.

    `before` and `after`: same shape and floating dtype; `grad`: the gradient that the optimizer saw, same
    shape, any floating dtype. Without grad, or with lr 0 (nothing is expected to move), grad_nonzero and
    unchanged are None. Non-finite elements, before or after, are in no count but nonfinite_after. Differences
    are taken in float64, where those of float32 and narrower weights are exact to 2^-53. Raises ValueError on
    a mismatch of shapes or dtypes.
    """
    if before.shape != after.shape or before.dtype != after.dtype:
        raise ValueError("before and after must have the same shape and dtype: take both from one parameter.")
    if not before.dtype.is_floating_point:
        raise ValueError(f"updates are compared on real floating-point weights, not {before.dtype}.")
    if grad is not None and grad.shape != before.shape:
        raise ValueError("grad must have the shape of the weight: pass the gradient of the same elements.")
    judged = grad is not None and lr != 0.0
    flat = [before.detach().reshape(-1), after.detach().reshape(-1)]
    slope = grad.detach().reshape(-1) if grad is not None and judged else None
    sums = _Sums()
    for start in range(0, before.numel(), _BLOCK):
        old, new = (x[start : start + _BLOCK].to("cpu") for x in flat)
        _add_block(old, new, None if slope is None else slope[start : start + _BLOCK].to("cpu"), sums)
    used = np.flatnonzero(sums.counts)
    lo, hi = (int(used[0]), int(used[-1]) + 1) if len(used) else (0, 0)
    return UpdateStats(
        numel=before.numel(),
        grad_nonzero=sums.grad_nonzero if judged else None,
        unchanged=sums.unchanged if judged else None,
        absorbed_fp16=sums.absorbed_fp16,
        absorbed_bf16=sums.absorbed_bf16,
        moved=sums.moved,
        below_2_11=int(sums.counts[: -11 - RATIO_MIN].sum()),
        below_2_8=int(sums.counts[: -8 - RATIO_MIN].sum()),
        update_norm=math.sqrt(sums.update_sq),
        weight_norm=math.sqrt(sums.weight_sq),
        update_amax=sums.update_amax,
        nonfinite_after=sums.nonfinite_after,
        ratio_lo=lo + RATIO_MIN if len(used) else None,
        ratio_hist=tuple(sums.counts[lo:hi].tolist()),
    )


def _add_block(old: torch.Tensor, new: torch.Tensor, grad: torch.Tensor | None, t: _Sums) -> None:
    t_w, t_dw = _wide(old), _wide(new)
    w, dw = t_w.numpy(), t_dw.numpy()
    weight_sq, new_sq = torch.dot(t_w, t_w).item(), torch.dot(t_dw, t_dw).item()
    finite: NDArray[np.bool_] | None = None
    if not (math.isfinite(weight_sq) and math.isfinite(new_sq)):
        # Seldom: something is not finite (or is a float64 that overflows when squared).
        before_ok, after_ok = np.isfinite(w), np.isfinite(dw)
        w[~before_ok] = 0.0
        weight_sq = torch.dot(t_w, t_w).item()
        t.nonfinite_after += len(dw) - int(np.count_nonzero(after_ok))
        finite = before_ok & after_ok
        w[~finite], dw[~finite] = 0.0, 0.0
    t.weight_sq += weight_sq
    moved = np.not_equal(w, dw)
    t.moved += int(np.count_nonzero(moved))
    # In torch: an overflow of float64 weights must not raise a RuntimeWarning in the user's process.
    torch.sub(t_dw, t_w, out=t_dw)
    t.update_sq += torch.dot(t_dw, t_dw).item()
    size, weight = np.abs(dw, out=dw), np.abs(w, out=w)
    if finite is None or finite.any():
        largest = float(np.maximum.reduce(size))
        t.update_amax = largest if t.update_amax is None else max(t.update_amax, largest)
    t.absorbed_fp16 += _absorbed(old, new, moved, torch.float16)
    t.absorbed_bf16 += _absorbed(old, new, moved, torch.bfloat16)
    _add_ratios(size, weight, moved, t)
    if grad is not None:
        wanted = _finite_nonzero(grad)
        t.grad_nonzero += int(np.count_nonzero(wanted))
        wanted &= _bits(old.clone()) == _bits(new.clone())
        t.unchanged += int(np.count_nonzero(wanted if finite is None else wanted & finite))


def _wide(x: torch.Tensor) -> torch.Tensor:
    return torch.empty(x.shape, dtype=torch.float64, device="cpu").copy_(x)


_SIGNED = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _bits(own: torch.Tensor) -> NDArray[np.signedinteger]:
    """Bits of a tensor that is ours: Tensor.numpy() makes a storage unresizable, so a caller's must be cloned."""
    bits: NDArray[np.signedinteger] = own.view(_SIGNED[own.element_size()]).numpy()
    return bits


@cache
def _inf_bits(dtype: torch.dtype) -> int:
    return int(_bits(torch.tensor([math.inf], dtype=dtype, device="cpu"))[0])


def _finite_nonzero(x: torch.Tensor) -> NDArray[np.bool_]:
    own = x.to(torch.float32) if x.element_size() == 1 else x.clone()
    bits = _bits(own)
    # Without the sign, finite and nonzero is an interval of the bits.
    magnitude = np.left_shift(bits, 1, out=bits).view(bits.dtype.str.replace("i", "u"))
    found: NDArray[np.bool_] = (magnitude != 0) & (magnitude < 2 * _inf_bits(own.dtype))
    return found


def _add_ratios(
    size: NDArray[np.float64], weight: NDArray[np.float64], moved: NDArray[np.bool_], t: _Sums
) -> None:
    # The difference of two positive floats' bits, shifted down by the mantissa, is floor(log2(size / weight)):
    # the exponents differ by it, less one where the mantissa of size is the smaller. No division, no rounding.
    difference = np.subtract(size.view(np.int64), weight.view(np.int64))
    exponent = np.right_shift(difference, 52, out=difference).astype(np.int16)
    np.clip(exponent, RATIO_MIN, RATIO_MAX, out=exponent)
    code = torch.from_numpy(np.subtract(exponent, RATIO_MIN, out=exponent).astype(np.uint8))
    counts: NDArray[np.int64] = torch.bincount(code, minlength=_BINS).numpy()
    # Zeros came out in known bins: an update of 0 in the first, a weight of 0 in the last, both 0 in that of 2^0.
    heavy = weight != 0
    both = int(np.count_nonzero(moved & heavy))
    only_weight = int(np.count_nonzero(heavy)) - both
    only_update = int(np.count_nonzero(moved)) - both
    counts[0] -= only_weight
    counts[-1] -= only_update
    counts[-RATIO_MIN] -= len(size) - both - only_weight - only_update
    t.counts += counts


def _absorbed(old: torch.Tensor, new: torch.Tensor, moved: NDArray[np.bool_], dtype: torch.dtype) -> int:
    if old.dtype is dtype:
        return 0
    if old.dtype is torch.float64:
        # A torch cast from float64 goes through float32 and would round twice.
        old, new = round_to(old, dtype), round_to(new, dtype)
    a, b = _bits(old.to(dtype)), _bits(new.to(dtype))
    equal = a == b
    equal |= np.bitwise_or(a, b, out=a) << 1 == 0  # 0 equals -0
    equal &= moved
    return int(np.count_nonzero(equal))


def subset_indices(numel: int, limit: int, seed: int) -> torch.Tensor | None:
    """`limit` distinct indices below `numel`, int64, sorted; None when there are no more than `limit` elements.

    One is drawn from each of `limit` equal stretches, by a generator of its own: the global random state stays
    as it is, and the same arguments give the same indices. Raises ValueError for a limit below 1.
    """
    if limit < 1:
        raise ValueError(f"a subset needs at least one element, not {limit}.")
    if numel <= limit:
        return None
    generator = torch.Generator(device="cpu").manual_seed(seed)
    edges = torch.arange(limit + 1, dtype=torch.int64, device="cpu") * numel // limit
    width = edges[1:] - edges[:-1]
    offset = torch.rand(limit, generator=generator, dtype=torch.float64, device="cpu") * width
    return edges[:-1] + torch.minimum(offset.to(torch.int64), width - 1)
