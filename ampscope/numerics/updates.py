"""What an optimizer step did to a weight, element by element: absorbed, would-be absorbed, and the ratio of update
to weight. Pure functions of the values before and after; nothing is written to the inputs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

RATIO_MIN, RATIO_MAX = -127, 127
"""Range of the exponents of `ratio_hist`; what lies beyond is counted in the outermost bin."""


@dataclass(frozen=True)
class UpdateStats:
    """Counts are elements; the fields are the columns of the trace's `updates` table.

    `unchanged`: gradient finite and nonzero, yet the stored bits did not change: absorbed, if the weight is
    stored in half. `absorbed_fp16`, `absorbed_bf16`: nonzero updates with round(w + dw) == round(w) in that
    format, which a weight stored in it would lose. Norms are Euclidean, in float64.
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


def compare_update(
    before: torch.Tensor, after: torch.Tensor, grad: torch.Tensor | None = None, lr: float | None = None
) -> UpdateStats:
    """Compare the values of a weight before and after a step.

    `before` and `after`: same shape and floating dtype; `grad`: the gradient that the optimizer saw, same
    shape, any floating dtype. With lr 0 nothing is expected to move, and `unchanged` is None. float32 and half
    differences are exact in float64, and so are the comparisons made here. Raises ValueError on a mismatch.
    """
    if before.shape != after.shape or before.dtype != after.dtype:
        raise ValueError("before and after must have the same shape and dtype: take both from one parameter.")
    if grad is not None and grad.shape != before.shape:
        raise ValueError("grad must have the shape of the weight: pass the gradient of the same elements.")
    w = before.detach().reshape(-1).to(torch.float64)
    new = after.detach().reshape(-1).to(torch.float64)
    finite = torch.isfinite(w) & torch.isfinite(new)
    dw = torch.where(finite, new - w, 0.0)
    moved = dw != 0.0
    grad_nonzero = unchanged = None
    if grad is not None and lr != 0.0:
        g = grad.detach().reshape(-1)
        wanted = torch.isfinite(g) & (g != 0)
        grad_nonzero = int(wanted.sum())
        unchanged = int((wanted & (w == new)).sum())
    size = dw.abs()
    weight = w.abs()
    comparable = moved & (weight > 0.0)
    ratio = torch.where(comparable, size / weight, 1.0)
    exponents = torch.frexp(ratio[comparable]).exponent.to(torch.int64) - 1
    lo, hist = _histogram(exponents)
    return UpdateStats(
        numel=w.numel(),
        grad_nonzero=grad_nonzero,
        unchanged=unchanged,
        absorbed_fp16=_absorbed(w, new, moved, torch.float16),
        absorbed_bf16=_absorbed(w, new, moved, torch.bfloat16),
        moved=int(moved.sum()),
        below_2_11=int((comparable & (ratio < 2.0**-11)).sum()),
        below_2_8=int((comparable & (ratio < 2.0**-8)).sum()),
        update_norm=float(torch.linalg.vector_norm(dw)),
        weight_norm=float(torch.linalg.vector_norm(torch.where(torch.isfinite(w), w, 0.0))),
        update_amax=float(size.max()) if w.numel() else None,
        nonfinite_after=int((~torch.isfinite(new)).sum()),
        ratio_lo=lo,
        ratio_hist=hist,
    )


def subset_indices(numel: int, limit: int, seed: int) -> torch.Tensor | None:
    """`limit` distinct indices below `numel`, int64, sorted; None when there are no more than `limit` elements.

    Drawn from a generator of its own: the global random state stays as it is.
    """
    if numel <= limit:
        return None
    generator = torch.Generator(device="cpu").manual_seed(seed)
    # One index from each of `limit` equal stretches: distinct and spread out without permuting `numel` numbers.
    edges = torch.arange(limit + 1, dtype=torch.int64, device="cpu") * numel // limit
    width = edges[1:] - edges[:-1]
    offset = torch.rand(limit, generator=generator, dtype=torch.float64, device="cpu") * width
    return edges[:-1] + torch.minimum(offset.to(torch.int64), width - 1)


def _absorbed(w: torch.Tensor, new: torch.Tensor, moved: torch.Tensor, dtype: torch.dtype) -> int:
    # float64 -> float32 -> half could round twice; torch casts float64 to half through float32, and the values
    # here come from float32 or narrower weights, for which the first step is exact.
    return int((moved & (w.to(dtype) == new.to(dtype))).sum())


def _histogram(exponents: torch.Tensor) -> tuple[int | None, tuple[int, ...]]:
    if exponents.numel() == 0:
        return None, ()
    clamped = exponents.clamp(RATIO_MIN, RATIO_MAX)
    lo = int(clamped.min())
    counts = torch.bincount(clamped - lo)
    return lo, tuple(int(n) for n in counts)
