"""Recomputes a half-precision op in float32 from its own inputs, to see what the half precision cost: values flushed
to zero, overflows, error. Leaves no trace in the random state, autograd or any buffer; ops that draw random numbers or
write to an argument are not on its list.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from ampscope.hooks.quiet import quiet

aten = torch.ops.aten


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


HALF = (torch.float16, torch.bfloat16)
LOW = (
    *HALF,
    *(
        getattr(torch, name)
        for name in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
        if hasattr(torch, name)
    ),
)

MATMUL = _names(
    "mm addmm bmm baddbmm addmv mv dot addbmm linear matmul convolution _convolution convolution_overrideable "
    "convolution_backward mkldnn_convolution cudnn_convolution "
    "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention_for_cpu_backward"
)
REDUCTION = _names(
    "sum mean cumsum cumprod prod norm linalg_vector_norm _foreach_norm var std var_mean std_mean logsumexp "
    "logcumsumexp _softmax _log_softmax _softmax_backward_data _log_softmax_backward_data native_layer_norm "
    "native_layer_norm_backward native_group_norm native_group_norm_backward _fused_rms_norm "
    "_fused_rms_norm_backward mse_loss mse_loss_backward smooth_l1_loss smooth_l1_loss_backward huber_loss "
    "huber_loss_backward binary_cross_entropy binary_cross_entropy_backward binary_cross_entropy_with_logits "
    "nll_loss_forward nll_loss_backward nll_loss2d_forward nll_loss2d_backward avg_pool2d avg_pool2d_backward "
    "_adaptive_avg_pool2d _adaptive_avg_pool2d_backward scatter_add index_add embedding_dense_backward "
    "_cdist_forward _euclidean_dist trace"
)
POINTWISE = _names(
    "exp exp2 expm1 log log2 log10 log1p pow sqrt rsqrt reciprocal square div mul add sub rsub addcmul addcdiv "
    "lerp sigmoid tanh gelu silu mish softplus elu log_sigmoid_forward sigmoid_backward tanh_backward "
    "gelu_backward silu_backward softplus_backward elu_backward mish_backward log_sigmoid_backward sinh cosh "
    "hypot cat stack"
)
CAST = frozenset(("_to_copy",))
_ALL = MATMUL | REDUCTION | POINTWISE | CAST

_FLOAT64 = _names("sum mean cumsum trace dot scatter_add index_add embedding_dense_backward")
"""Plain sums: float64, rounded to float32 at the end, is what an exact float32 accumulation would give."""


@dataclass(frozen=True)
class Shadow:
    """What float32 gives where the run got a half result; all counts are elements of half outputs.

    amax: largest finite |y| recomputed, None when there is none. nonfinite: NaN and inf of y: 0 says that float32
    would have survived. flushed: y is not 0, the observed element is. overflowed: y is finite, the observed
    element is not. sqnr_db: 10 log10(sum y^2 / sum (y - observed)^2) over elements finite in both, inf for no
    error, None for an all-zero y. max_ulp: largest |y - observed| in units of the last place of the half dtype
    at y (subnormal spacing below its smallest normal); 0.5 is correct rounding.
    """

    numel: int
    amax: float | None
    nonfinite: int
    flushed: int
    overflowed: int
    sqnr_db: float | None
    max_ulp: float | None = None


def kind_of(func: Any) -> str | None:
    """matmul, reduction, pointwise or cast; None for an op that is never recomputed. In-place counts as its
    functional form."""
    return _kinds.get(func) or _kind(func)


_kinds: dict[Any, str] = {}


def _kind(func: Any) -> str | None:
    packet = getattr(func, "_overloadpacket", None)
    if packet is None or func.namespace != "aten" or func._overloadname.endswith("out"):
        return None
    name = _functional_name(func)
    if name not in _ALL:
        return None
    groups = (("matmul", MATMUL), ("reduction", REDUCTION), ("cast", CAST), ("pointwise", POINTWISE))
    kind = next(kind for kind, names in groups if name in names)
    if _functional(func) is None:
        return None
    _kinds[func] = kind
    return kind


def in_place(func: Any) -> bool:
    """The op overwrites its first argument: call `reference` before it runs."""
    return bool(func._schema.name.endswith("_"))


def _functional_name(func: Any) -> str:
    name: str = func._schema.name.removeprefix("aten::")
    return name.rstrip("_") if name.endswith("_") else name


def _functional(func: Any) -> Any:
    """The overload of the functional form that takes the same arguments."""
    if not in_place(func):
        return func
    packet = getattr(aten, _functional_name(func), None)
    return getattr(packet, func._overloadname, None)


def recompute(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any, *, ulp: bool = True
) -> Shadow | None:
    """Shadow of a finished call that did not overwrite its arguments. None when the op is not on the list, when
    no output is half, or when float32 has no kernel for it. `ulp=False` saves a third of the comparison."""
    if kind_of(func) is None or in_place(func) or not half_outputs(out):
        return None
    exact = reference(func, args, kwargs)
    return None if exact is None else compare(exact, out, ulp=ulp)


def reference(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The op's results in float32 (float64 for plain sums), None when float32 has no kernel for it."""
    name = _functional_name(func)
    wide = torch.float64 if name in _FLOAT64 else torch.float32
    with quiet():
        if name in CAST:
            source = args[0]
            return source if source.dtype.is_floating_point else source.to(torch.float64)
        if name in MATMUL and _tf32_possible(args):
            wide = torch.float64
        wide_args = [_widened(a, wide) for a in args]
        if name in ("_softmax", "_log_softmax"):
            wide_args[2] = False  # half_to_float
        wide_kwargs = {k: _widened(v, wide) for k, v in kwargs.items()}
        try:
            return _functional(func)(*wide_args, **wide_kwargs)
        except (RuntimeError, NotImplementedError, TypeError):
            return None


def _tf32_possible(args: tuple[Any, ...]) -> bool:
    """float32 products on this device may round their inputs to 10 mantissa bits, no better than float16."""
    on_cuda = any(isinstance(a, torch.Tensor) and a.is_cuda for a in args)
    return on_cuda and (torch.backends.cuda.matmul.allow_tf32 or torch.backends.cudnn.allow_tf32)


def _widened(value: Any, wide: torch.dtype) -> Any:
    if isinstance(value, torch.Tensor):
        low = value.dtype in LOW or (wide is torch.float64 and value.dtype is torch.float32)
        return value.detach().to(wide) if low else value.detach()
    if isinstance(value, torch.dtype):
        return wide if value in LOW or value is torch.float32 else value
    if isinstance(value, (list, tuple)):
        return [_widened(v, wide) for v in value]
    return value


def half_outputs(out: Any) -> list[torch.Tensor]:
    """The low-precision floating-point tensors among the results of a call."""
    items = out if isinstance(out, (list, tuple)) else (out,)
    return [t for t in items if isinstance(t, torch.Tensor) and t.dtype in LOW]


def compare(exact: Any, out: Any, *, ulp: bool = False) -> Shadow | None:
    """Compare the half results in `out` with `exact`, which has the same structure. All half results count
    together. None when there is none or when shapes do not match."""
    wide = list(exact) if isinstance(exact, (list, tuple)) else [exact]
    seen = list(out) if isinstance(out, (list, tuple)) else [out]
    total: _Sums | None = None
    with quiet():
        for y, half in zip(wide, seen, strict=False):
            if not isinstance(half, torch.Tensor) or half.dtype not in LOW or not isinstance(y, torch.Tensor):
                continue
            if y.shape != half.shape:
                return None
            total = _compared(y.detach(), half.detach(), ulp, total)
    return None if total is None else total.shadow()


@dataclass
class _Sums:
    numel: int = 0
    amax: float | None = None
    nonfinite: int = 0
    flushed: int = 0
    overflowed: int = 0
    signal: float = 0.0
    noise: float = 0.0
    ulp: float | None = None

    def shadow(self) -> Shadow:
        ratio = None
        if self.signal > 0.0:
            ratio = 10.0 * math.log10(self.signal / self.noise) if self.noise > 0.0 else math.inf
        return Shadow(self.numel, self.amax, self.nonfinite, self.flushed, self.overflowed, ratio, self.ulp)


def _compared(y: torch.Tensor, half: torch.Tensor, ulp: bool, total: _Sums | None) -> _Sums:
    total = total or _Sums()
    if y.numel() == 0:
        return total
    y = y.to(torch.float32) if y.dtype is not torch.float64 else y
    seen = half.to(y.dtype)
    finite = torch.isfinite(y) if y.dtype is torch.float32 else torch.isfinite(y.to(torch.float32))
    seen_finite = torch.isfinite(seen)
    counted = finite & seen_finite
    true = torch.where(counted, y, 0.0)
    error = torch.where(counted, y - seen, 0.0)
    kept = torch.where(finite, y, 0.0)
    counts = torch.stack(
        (
            torch.count_nonzero(finite),
            torch.count_nonzero((y != 0) & (seen == 0)),
            torch.count_nonzero(finite & ~seen_finite),
        )
    ).tolist()
    sums = torch.stack(
        (
            kept.abs().max().to(torch.float64),
            true.to(torch.float64).square().sum(),
            error.to(torch.float64).square().sum(),
        )
    ).tolist()
    total.numel += y.numel()
    if counts[0]:
        total.amax = max(sums[0], total.amax or 0.0)
    total.nonfinite += y.numel() - counts[0]
    total.flushed += counts[1]
    total.overflowed += counts[2]
    total.signal += sums[1]
    total.noise += sums[2]
    if ulp:
        total.ulp = max(_largest_ulp(true, error, half.dtype), total.ulp or 0.0)
    return total


def _largest_ulp(true: torch.Tensor, error: torch.Tensor, dtype: torch.dtype) -> float:
    """Largest |error| in units in the last place of `dtype` at `true`."""
    info = torch.finfo(dtype)
    _, exponent = torch.frexp(true.to(torch.float64).abs().clamp_min(info.smallest_normal))
    spacing = torch.ldexp(torch.full_like(error, info.eps, dtype=torch.float64), exponent - 1)
    return float((error.to(torch.float64).abs() / spacing).max())
