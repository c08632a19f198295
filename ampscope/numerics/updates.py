"""What an optimizer step did to a weight, element by element: absorbed, would-be absorbed, and the ratio of
update to weight. Pure functions of the values before and after; nothing is written to the inputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate

import numpy as np
import torch
from numpy.typing import NDArray

from .formats import round_to

RATIO_MIN, RATIO_MAX = -127, 127
"""Range of the exponents of `ratio_hist`; what lies beyond is counted in the outermost bin."""

_BLOCK = 65536
_FEW = 4096
"""Below this many elements NumPy's cheaper call wins over torch's cheaper elements."""

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


@dataclass(frozen=True)
class Update:
    """A weight before and after a step: same shape and floating dtype. `grad`: the gradient that the optimizer saw,
    same shape, any floating dtype."""

    before: torch.Tensor
    after: torch.Tensor
    grad: torch.Tensor | None = None
    lr: float | None = None

    def __post_init__(self) -> None:
        if self.before.shape != self.after.shape or self.before.dtype != self.after.dtype:
            raise ValueError(
                "before and after must have the same shape and dtype: take both from one parameter."
            )
        if not self.before.dtype.is_floating_point:
            raise ValueError(f"updates are compared on real floating-point weights, not {self.before.dtype}.")
        if self.grad is not None and self.grad.shape != self.before.shape:
            raise ValueError(
                "grad must have the shape of the weight: pass the gradient of the same elements."
            )

    @property
    def judged(self) -> torch.Tensor | None:
        """The gradient that asked for a change: None without one, and with lr 0, where nothing is to move."""
        return None if self.lr == 0.0 else self.grad


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

    def stats(self, of: Update) -> UpdateStats:
        used = np.flatnonzero(self.counts)
        lo, hi = (int(used[0]), int(used[-1]) + 1) if len(used) else (0, 0)
        judged = of.judged is not None
        return UpdateStats(
            numel=of.before.numel(),
            grad_nonzero=self.grad_nonzero if judged else None,
            unchanged=self.unchanged if judged else None,
            absorbed_fp16=self.absorbed_fp16,
            absorbed_bf16=self.absorbed_bf16,
            moved=self.moved,
            below_2_11=int(self.counts[: -11 - RATIO_MIN].sum()),
            below_2_8=int(self.counts[: -8 - RATIO_MIN].sum()),
            update_norm=math.sqrt(self.update_sq),
            weight_norm=math.sqrt(self.weight_sq),
            update_amax=self.update_amax,
            nonfinite_after=self.nonfinite_after,
            ratio_lo=lo + RATIO_MIN if len(used) else None,
            ratio_hist=tuple(self.counts[lo:hi].tolist()),
        )


def compare_update(
    before: torch.Tensor, after: torch.Tensor, grad: torch.Tensor | None = None, lr: float | None = None
) -> UpdateStats:
    """Compare the values of a weight before and after a step: `compare_updates` of one `Update`."""
    return compare_updates([Update(before, after, grad, lr)])[0]


def compare_updates(updates: Sequence[Update]) -> list[UpdateStats]:
    """Compare the values of weights before and after a step; small ones side by side, so that they share the calls.

    Without grad, or with lr 0 (nothing is expected to move), grad_nonzero and unchanged are None. Non-finite
    elements, before or after, are in no count but nonfinite_after. Differences are taken in float64, where those of
    float32 and narrower weights are exact to 2^-53. An `Update` raises ValueError on a mismatch of shapes or dtypes.
    """
    sums = [_Sums() for _ in updates]
    kinds: dict[tuple[torch.dtype, torch.dtype | None], list[_Piece]] = {}
    for update, own in zip(updates, sums, strict=True):
        slope = update.judged
        kind = update.before.dtype, None if slope is None else slope.dtype
        kinds.setdefault(kind, []).extend(_pieces(update, own))
    for pieces in kinds.values():
        for block in _blocks(pieces):
            _add_block(block)
    return [own.stats(of) for of, own in zip(updates, sums, strict=True)]


@dataclass(frozen=True)
class _Piece:
    """At most _BLOCK elements of one weight, and where they are counted."""

    sums: _Sums
    n: int
    old: torch.Tensor
    new: torch.Tensor
    grad: torch.Tensor | None


def _pieces(update: Update, sums: _Sums) -> Iterator[_Piece]:
    old, new = update.before.detach().reshape(-1), update.after.detach().reshape(-1)
    grad = None if update.judged is None else update.judged.detach().reshape(-1)
    n = old.numel()
    if 0 < n <= _BLOCK:
        yield _Piece(sums, n, old, new, grad)
        return
    for start in range(0, n, _BLOCK):
        at = slice(start, start + _BLOCK)
        yield _Piece(sums, min(_BLOCK, n - start), old[at], new[at], None if grad is None else grad[at])


def _blocks(pieces: list[_Piece]) -> Iterator[list[_Piece]]:
    """The pieces in order, as many at a time as make up _BLOCK elements."""
    block: list[_Piece] = []
    room = _BLOCK
    for piece in pieces:
        if block and piece.n > room:
            yield block
            block, room = [], _BLOCK
        block.append(piece)
        room -= piece.n
    if block:
        yield block


def _add_block(pieces: list[_Piece]) -> None:
    """Count pieces of one kind. What goes element by element is done for all at once, on copies."""
    old, new = _joined([p.old for p in pieces]), _joined([p.new for p in pieces])
    ends = list(accumulate(p.n for p in pieces))
    places = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]
    t_w, t_dw = _wide(old), _wide(new)
    w, dw = t_w.numpy(), t_dw.numpy()
    weight_sq = _squares(t_w, places)
    finite: NDArray[np.bool_] | None = None
    if not all(map(math.isfinite, (*weight_sq, *_squares(t_dw, places)))):
        # Seldom: something is not finite (or is a float64 that overflows when squared).
        before_ok, after_ok = np.isfinite(w), np.isfinite(dw)
        w[~before_ok] = 0.0
        weight_sq = _squares(t_w, places)
        for p, at in zip(pieces, places, strict=True):
            p.sums.nonfinite_after += p.n - _true(after_ok[at])
        finite = before_ok & after_ok
        w[~finite], dw[~finite] = 0.0, 0.0
    moved = np.not_equal(w, dw)
    # In torch: an overflow of float64 weights must not raise a RuntimeWarning in the user's process.
    torch.sub(t_dw, t_w, out=t_dw)
    update_sq = _squares(t_dw, places)
    size, weight = np.abs(dw, out=dw), np.abs(w, out=w)
    lost_fp16, lost_bf16 = (_absorbed(old, new, moved, dtype) for dtype in (torch.float16, torch.bfloat16))
    heavy = weight != 0
    both = moved & heavy
    codes = _ratio_codes(size, weight)
    wanted, kept = _unchanged(pieces, old, new, finite)
    for i, (p, at) in enumerate(zip(pieces, places, strict=True)):
        t = p.sums
        t.weight_sq += weight_sq[i]
        t.update_sq += update_sq[i]
        changed = _true(moved[at])
        t.moved += changed
        if finite is None or finite[at].any():
            largest = float(np.maximum.reduce(size[at]))
            t.update_amax = largest if t.update_amax is None else max(t.update_amax, largest)
        t.absorbed_fp16 += _true(lost_fp16, at)
        t.absorbed_bf16 += _true(lost_bf16, at)
        t.grad_nonzero += _true(wanted, at)
        t.unchanged += _true(kept, at)
        _add_ratios(codes[at], changed, _true(heavy[at]), _true(both[at]), t)


def _true(mask: NDArray[np.bool_] | None, at: slice = slice(None)) -> int:
    return 0 if mask is None else int(np.count_nonzero(mask[at]))


def _joined(parts: list[torch.Tensor]) -> torch.Tensor:
    """A copy on the host, which is ours: `Tensor.numpy()` makes a storage unresizable."""
    return torch.cat(parts if all(x.device.type == "cpu" for x in parts) else [x.to("cpu") for x in parts])


def _squares(x: torch.Tensor, places: list[slice]) -> list[float]:
    if len(places) == 1:
        return [torch.dot(x, x).item()]
    squares = torch.mul(x, x).numpy()
    # A float64 may overflow: that must not raise a RuntimeWarning in the user's process.
    with np.errstate(over="ignore"):
        found: list[float] = np.add.reduceat(squares, [at.start for at in places]).tolist()
    return found


def _unchanged(
    pieces: list[_Piece], old: torch.Tensor, new: torch.Tensor, finite: NDArray[np.bool_] | None
) -> tuple[NDArray[np.bool_] | None, NDArray[np.bool_] | None]:
    """(the gradient asks for a change, and there is none)."""
    slopes = [p.grad for p in pieces if p.grad is not None]
    if not slopes:
        return None, None
    wanted = _finite_nonzero(_joined(slopes))
    kept = wanted & (_bits(old) == _bits(new))
    return wanted, kept if finite is None else kept & finite


def _wide(x: torch.Tensor) -> torch.Tensor:
    return torch.empty(x.shape, dtype=torch.float64, device="cpu").copy_(x)


_SIGNED = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _bits(own: torch.Tensor) -> NDArray[np.signedinteger]:
    bits: NDArray[np.signedinteger] = own.view(_SIGNED[own.element_size()]).numpy()
    return bits


@cache
def _inf_bits(dtype: torch.dtype) -> int:
    return int(_bits(torch.tensor([math.inf], dtype=dtype, device="cpu"))[0])


def _finite_nonzero(own: torch.Tensor) -> NDArray[np.bool_]:
    """Overwrites its argument."""
    own = own.to(torch.float32) if own.element_size() == 1 else own
    bits = _bits(own)
    # Without the sign, finite and nonzero is an interval of the bits; less one, zero is the largest of all.
    magnitude = np.left_shift(bits, 1, out=bits).view(bits.dtype.str.replace("i", "u"))
    found: NDArray[np.bool_] = np.subtract(magnitude, 1, out=magnitude) < 2 * _inf_bits(own.dtype) - 1
    return found


def _ratio_codes(size: NDArray[np.float64], weight: NDArray[np.float64]) -> NDArray[np.uint8]:
    """uint8: the bin of each ratio."""
    # The difference of two positive floats' bits, shifted down by the mantissa, is floor(log2(size / weight)):
    # the exponents differ by it, less one where the mantissa of size is the smaller. No division, no rounding.
    difference = np.subtract(size.view(np.int64), weight.view(np.int64))
    exponent = np.right_shift(difference, 52, out=difference).astype(np.int16)
    np.clip(exponent, RATIO_MIN, RATIO_MAX, out=exponent)
    return np.subtract(exponent, RATIO_MIN, out=exponent).astype(np.uint8)


def _add_ratios(codes: NDArray[np.uint8], moved: int, heavy: int, both: int, t: _Sums) -> None:
    counts: NDArray[np.int64]
    if len(codes) < _FEW:
        counts = np.bincount(codes, minlength=_BINS)
    else:
        counts = torch.bincount(torch.from_numpy(codes), minlength=_BINS).numpy()
    # Zeros came out in known bins: an update of 0 in the first, a weight of 0 in the last, both 0 in that of 2^0.
    counts[0] -= heavy - both
    counts[-1] -= moved - both
    counts[-RATIO_MIN] -= len(codes) - heavy - moved + both
    t.counts += counts


def _absorbed(
    old: torch.Tensor, new: torch.Tensor, moved: NDArray[np.bool_], dtype: torch.dtype
) -> NDArray[np.bool_] | None:
    if old.dtype is dtype:
        return None
    if old.dtype is torch.float64:
        # A torch cast from float64 goes through float32 and would round twice.
        old, new = round_to(old, dtype), round_to(new, dtype)
    a, b = _bits(old.to(dtype)), _bits(new.to(dtype))
    equal: NDArray[np.bool_] = a == b
    equal |= np.bitwise_or(a, b, out=a) << 1 == 0  # 0 equals -0
    equal &= moved
    return equal


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
