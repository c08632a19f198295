"""Block-scaled and per-tensor quantisation recipes: what a tensor would lose in FP8, FP6 or FP4.

A recipe is a row of RECIPES: an element format, the block of elements that shares a scale, and how the scale is
chosen. Values are scaled in float64 and rounded once, to nearest even, saturating; kernels that multiply by a
float32 reciprocal differ from this by less than one part in 10^6 of a step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from .formats import Format, of_dtype, power_of_two, round_to

Scaling = Literal["power_of_two", "power_of_two_up", "e4m3_and_tensor", "float32", "delayed"]
Orientation = Literal["rows", "columns"]

_SLAB = 1 << 21
"""Elements handled at once: bounds the float64 copies to about 100 MB."""


@dataclass(frozen=True)
class Recipe:
    """format: element format; block: (rows, columns) that share a scale, None for the whole tensor.

    scaling: power_of_two: 2^(floor(log2 amax) - emax), OCP MX 1.0 section 6.3; power_of_two_up: the smallest
    power of two at which amax does not saturate; e4m3_and_tensor: amax/largest in e4m3, times one float32
    scale for the tensor (NVFP4); float32: amax/largest; delayed: the same from earlier steps' amax.
    """

    name: str
    format: str
    block: tuple[int, int] | None
    scaling: Scaling
    source: str

    @property
    def directed(self) -> bool:
        """Whether blocks differ between a tensor and its transpose: then both orientations matter, one for the
        forward and one for a backward matmul."""
        return self.block is not None and self.block[0] != self.block[1]


_MX = "OCP Microscaling Formats 1.0"
_DEEPSEEK = "DeepSeek-V3, arXiv:2412.19437, section 3.3.2"
_TE = "Transformer Engine"

RECIPES: dict[str, Recipe] = {
    r.name: r
    for r in (
        Recipe("mxfp8", "fp8_e4m3fn", (1, 32), "power_of_two", _MX),
        Recipe("mxfp8_up", "fp8_e4m3fn", (1, 32), "power_of_two_up", f"{_MX}, scale rounded up as in {_TE}"),
        Recipe("mxfp8_e5m2", "fp8_e5m2", (1, 32), "power_of_two", _MX),
        Recipe("mxfp6_e2m3", "fp6_e2m3", (1, 32), "power_of_two", _MX),
        Recipe("mxfp6_e3m2", "fp6_e3m2", (1, 32), "power_of_two", _MX),
        Recipe("mxfp4", "fp4_e2m1", (1, 32), "power_of_two", _MX),
        Recipe("nvfp4", "fp4_e2m1", (1, 16), "e4m3_and_tensor", "NVIDIA NVFP4, arXiv:2509.25149"),
        Recipe("1x128_e4m3", "fp8_e4m3fn", (1, 128), "float32", f"{_DEEPSEEK}: activations"),
        Recipe("128x128_e4m3", "fp8_e4m3fn", (128, 128), "float32", f"{_DEEPSEEK}: weights"),
        Recipe("tensor_e4m3", "fp8_e4m3fn", None, "float32", f"{_TE}, current scaling"),
        Recipe("tensor_e5m2", "fp8_e5m2", None, "float32", f"{_TE}, current scaling"),
        Recipe("delayed_e4m3", "fp8_e4m3fn", None, "delayed", f"{_TE}, delayed scaling"),
        Recipe("delayed_e5m2", "fp8_e5m2", None, "delayed", f"{_TE}, delayed scaling"),
    )
}


@dataclass(frozen=True)
class RecipeReport:
    """What one tensor loses. flushed: nonzero elements that become zero; saturated: elements that the scale
    leaves beyond the format's range; sqnr_db: 10 log10(sum x^2 / sum (x - q)^2), inf when nothing is lost;
    relative_error: sqrt of the inverse of that ratio. Non-finite elements are counted and left out."""

    recipe: str
    orientation: Orientation
    numel: int
    nonzero: int
    nonfinite: int
    flushed: int
    saturated: int
    sqnr_db: float
    relative_error: float

    @property
    def flushed_share(self) -> float:
        """flushed / nonzero; 0 when nothing is nonzero."""
        return self.flushed / self.nonzero if self.nonzero else 0.0

    @property
    def saturated_share(self) -> float:
        """saturated / nonzero; 0 when nothing is nonzero."""
        return self.saturated / self.nonzero if self.nonzero else 0.0


def recipe_of(name: str | Recipe) -> Recipe:
    """The row of a name. Raises ValueError for an unknown one."""
    if isinstance(name, Recipe):
        return name
    if name not in RECIPES:
        raise ValueError(
            f"{name!r} is not a quantisation recipe that ampscope knows; known are {', '.join(RECIPES)}."
        )
    return RECIPES[name]


def evaluate(
    tensor: torch.Tensor,
    recipe: str | Recipe,
    orientation: Orientation = "rows",
    *,
    amax_history: Sequence[float] = (),
    margin: int = 0,
) -> RecipeReport:
    """Quantise and dequantise a real tensor, and report the loss.

    The tensor is seen as a matrix: leading dimensions times the last one. "rows" puts blocks along the last
    dimension, "columns" along the leading ones (the operand of the other matmul). amax_history and margin
    matter to delayed recipes only (`delayed_scale`). Raises ValueError for an unknown recipe or orientation,
    and for a delayed recipe without history.
    """
    r = recipe_of(recipe)
    x = _matrix(tensor, orientation)
    finite = x.isfinite()
    clean = torch.where(finite, x, 0)
    amax = float(clean.abs().max()) if clean.numel() else 0.0
    tensor_scale = _tensor_scale(r, amax, amax_history, margin)
    f = of_dtype(r.format)
    flushed = saturated = nonzero = 0
    signal = noise = 0.0
    for slab in _slabs(clean, r):
        y, q = _quantised(slab.to(torch.float64), r, f, tensor_scale)
        there = slab != 0
        nonzero += int(there.sum())
        flushed += int((there & (q == 0)).sum())
        saturated += int((y.abs() >= f.smallest_overflow).sum())
        signal += float(slab.to(torch.float64).square().sum())
        noise += float((slab.to(torch.float64) - q).square().sum())
    ratio = noise / signal if signal else 0.0
    return RecipeReport(
        r.name, orientation, x.numel(), nonzero, x.numel() - int(finite.sum()), flushed, saturated,
        -10 * math.log10(ratio) if ratio else math.inf, math.sqrt(ratio),
    )  # fmt: skip


def evaluate_both(tensor: torch.Tensor, recipe: str | Recipe) -> tuple[RecipeReport, ...]:
    """Reports for each orientation in which the recipe's blocks differ: two for 1-D blocks, else one."""
    orientations: tuple[Orientation, ...] = ("rows", "columns") if recipe_of(recipe).directed else ("rows",)
    return tuple(evaluate(tensor, recipe, o) for o in orientations)


def quantise(
    tensor: torch.Tensor,
    recipe: str | Recipe,
    orientation: Orientation = "rows",
    *,
    amax_history: Sequence[float] = (),
    margin: int = 0,
) -> torch.Tensor:
    """The values that the recipe keeps of a finite real tensor: float64, same shape. See `evaluate`."""
    r = recipe_of(recipe)
    x = _matrix(tensor, orientation)
    amax = float(x.abs().max()) if x.numel() else 0.0
    scale = _tensor_scale(r, amax, amax_history, margin)
    parts = [_quantised(s.to(torch.float64), r, of_dtype(r.format), scale)[1] for s in _slabs(x, r)]
    q = torch.cat(parts) if parts else x.to(torch.float64)
    return (q.t() if orientation == "columns" else q).reshape(tensor.shape)


def delayed_scale(
    amax_history: Sequence[float],
    fmt: str | torch.dtype | Format = "fp8_e4m3fn",
    *,
    history_length: int = 1024,
    margin: int = 0,
    previous: float = 1.0,
) -> float:
    """Factor by which values are multiplied before the cast, from the amax of earlier steps.

    largest / (2^margin * max of the last history_length entries), as Transformer Engine's DelayedScaling with
    "max"; `previous` where that maximum is zero or not finite.
    """
    if history_length < 1:
        raise ValueError(f"an amax history holds at least one step, not {history_length}.")
    amax = max(amax_history[-history_length:], default=0.0)
    if not (math.isfinite(amax) and amax > 0):
        return previous
    scale = math.ldexp(of_dtype(fmt).largest / amax, -margin)
    return scale if math.isfinite(scale) and scale > 0 else previous


def delayed_scales(
    amax_per_step: Sequence[float],
    fmt: str | torch.dtype | Format = "fp8_e4m3fn",
    *,
    history_length: int = 1024,
    margin: int = 0,
) -> tuple[float, ...]:
    """The factor in force at each step of a run, 1.0 at the first: ask `what_if(hist, fmt, factor)` what then
    flushed or saturated."""
    factors: list[float] = []
    for step in range(len(amax_per_step)):
        history = amax_per_step[max(0, step - history_length) : step]
        previous = factors[-1] if factors else 1.0
        factors.append(
            delayed_scale(history, fmt, history_length=history_length, margin=margin, previous=previous)
        )
    return tuple(factors)


def _matrix(tensor: torch.Tensor, orientation: Orientation) -> torch.Tensor:
    if orientation not in ("rows", "columns"):
        raise ValueError(f"orientation is 'rows' or 'columns', not {orientation!r}.")
    if tensor.is_complex():
        raise ValueError("recipes quantise real tensors: pass torch.view_as_real(tensor).")
    x = tensor.detach()
    x = x.reshape(-1, x.shape[-1]) if x.dim() and x.numel() else x.reshape(1, -1)
    return x.t() if orientation == "columns" else x


def _tensor_scale(r: Recipe, amax: float, history: Sequence[float], margin: int) -> float:
    """Multiplier of block scales (NVFP4), or the only scale (per tensor): what a stored value is worth."""
    f = of_dtype(r.format)
    if r.scaling == "delayed":
        if not history:
            raise ValueError(f"the recipe {r.name} needs amax_history: the largest |x| of earlier steps.")
        return 1.0 / delayed_scale(history, f, history_length=len(history), margin=margin)
    if amax == 0 or r.scaling in ("power_of_two", "power_of_two_up"):
        return 1.0
    if r.scaling == "e4m3_and_tensor":
        return _float32_scale(amax / (f.largest * of_dtype("fp8_e4m3fn").largest))
    return _float32_scale(amax / f.largest) if r.block is None else 1.0


def _float32_scale(x: float) -> float:
    return min(max(round_to(x, "fp32"), 2.0**-149), of_dtype("fp32").largest)


def _slabs(x: torch.Tensor, r: Recipe) -> Iterator[torch.Tensor]:
    """Groups of rows, whole blocks each."""
    if not x.numel():
        return
    height = r.block[0] if r.block else 1
    rows = max(1, _SLAB // (x.shape[1] * height)) * height
    for start in range(0, x.shape[0], rows):
        yield x[start : start + rows]


def _quantised(
    x: torch.Tensor, r: Recipe, f: Format, tensor_scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """(scaled values before the cast, dequantised values) of a float64 matrix."""
    scale: torch.Tensor | float = tensor_scale
    if r.block is not None:
        scale = _spread(_block_scale(_block_amax(x, r.block), r, f, tensor_scale), r.block, x)
    y = x / scale
    if isinstance(scale, torch.Tensor):
        y = torch.where(scale == 0, 0, y)  # a block scale that itself rounded to zero takes its block along
    return y, round_to(y.clamp(-f.largest, f.largest), f) * scale


def _block_amax(x: torch.Tensor, block: tuple[int, int]) -> torch.Tensor:
    rows, cols = (-(-n // b) for n, b in zip(x.shape, block, strict=True))
    padded = torch.zeros((rows * block[0], cols * block[1]), dtype=x.dtype, device=x.device)
    padded[: x.shape[0], : x.shape[1]] = x.abs()
    return padded.view(rows, block[0], cols, block[1]).amax(dim=(1, 3))


def _spread(scale: torch.Tensor, block: tuple[int, int], x: torch.Tensor) -> torch.Tensor:
    full = scale.repeat_interleave(block[0], 0).repeat_interleave(block[1], 1)
    return full[: x.shape[0], : x.shape[1]]


def _block_scale(amax: torch.Tensor, r: Recipe, f: Format, tensor_scale: float) -> torch.Tensor:
    if r.scaling == "e4m3_and_tensor":
        return round_to(amax / f.largest / tensor_scale, "fp8_e4m3fn") * tensor_scale
    if r.scaling == "float32":
        return torch.where(amax > 0, round_to(amax / f.largest, "fp32"), 1)
    # frexp gives amax = m 2^e with 0.5 <= m < 1, so floor(log2 amax) = e - 1; all exact.
    exponent = torch.frexp(amax).exponent.to(torch.int64) - 1 - f.emax
    if r.scaling == "power_of_two_up":
        top = f.largest / math.ldexp(1.0, f.emax)
        exponent += (torch.frexp(amax).mantissa * 2 > top).to(torch.int64)
    exponent = torch.where(amax > 0, exponent, -127).clamp(-127, 127)
    return power_of_two(exponent)
