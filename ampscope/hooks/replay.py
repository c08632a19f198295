"""Computes an op of the forward again from what autograd saved of it and from its inputs, in their own dtype or in
float32. Covers the ops that scripts write by hand; anything else is unknown. Call it under `quiet()`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Tensors = list[torch.Tensor | None]
Saved = dict[str, Any]
Out = tuple[str, str]
"""(dtype, shape) of the result."""


def replay(name: str, saved: Saved, inputs: Tensors, out: Out, *, wide: bool = False) -> torch.Tensor | None:
    """The result of `aten::name`; with `wide` computed in float32. None where it is not known how, or from what."""
    compute = _OPS.get(name.removeprefix("aten::"))
    if compute is None or (wide and name == "aten::_to_copy"):
        return _wide(inputs[0]) if compute is not None and inputs else None
    if wide:
        saved = {k: _wide(v) for k, v in saved.items()}
        inputs = [_wide(t) for t in inputs]
    try:
        result = compute(saved, inputs, out)
    except (RuntimeError, TypeError, IndexError, ValueError, NotImplementedError):
        return None
    return result if wide or result is None or _is_dtype(result, out[0]) else None


def _wide(value: Any) -> Any:
    return value.float() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def _is_dtype(value: torch.Tensor, dtype: str) -> bool:
    return str(value.dtype) == f"torch.{dtype}"


def _signed(number: int) -> int:
    """Dimensions are kept as unsigned 64-bit numbers: -1 is 2^64 - 1."""
    return number - 2**64 if number >= 2**63 else number


def _dims(saved: Saved) -> list[int]:
    dim = saved["dim"]
    return [_signed(d) for d in dim] if isinstance(dim, (list, tuple)) else [_signed(dim)]


def _sizes(out: Out) -> list[int]:
    return [int(n) for n in out[1].split("x")] if out[1] else []


def _first(saved: Saved, inputs: Tensors, key: str = "self", place: int = 0) -> torch.Tensor:
    """An argument: as autograd saved it, else the result that went into it."""
    value = saved.get(key)
    if value is None and place < len(inputs):
        value = inputs[place]
    if value is None:
        raise ValueError(key)
    found: torch.Tensor = value
    return found


Compute = Callable[[Saved, Tensors, Out], torch.Tensor]


def _unary(function: Callable[..., torch.Tensor]) -> Compute:
    return lambda saved, inputs, out: function(_first(saved, inputs))


def _binary(function: Callable[..., torch.Tensor]) -> Compute:
    def compute(saved: Saved, inputs: Tensors, out: Out) -> torch.Tensor:
        return function(_first(saved, inputs), _first(saved, inputs, "other", 1))

    return compute


def _sum(saved: Saved, inputs: Tensors, out: Out) -> torch.Tensor:
    x = _first(saved, inputs)
    return x.sum() if "dim" not in saved else x.sum(_dims(saved), bool(saved.get("keepdim")))


def _mean(saved: Saved, inputs: Tensors, out: Out) -> torch.Tensor:
    x = _first(saved, inputs)
    return x.mean() if "dim" not in saved else x.mean(_dims(saved), bool(saved.get("keepdim")))


def _clamp(saved: Saved, inputs: Tensors, out: Out) -> torch.Tensor:
    return torch.clamp(_first(saved, inputs), saved.get("min"), saved.get("max"))


def _addmm(saved: Saved, inputs: Tensors, out: Out) -> torch.Tensor:
    product = _first(saved, inputs, "mat1", 1) @ _first(saved, inputs, "mat2", 2)
    bias = inputs[0]
    return product if bias is None else product + bias


def _mm(saved: Saved, inputs: Tensors, out: Out) -> torch.Tensor:
    return torch.matmul(_first(saved, inputs), _first(saved, inputs, "mat2", 1))


def _convolution(saved: Saved, inputs: Tensors, out: Out) -> torch.Tensor:
    bias = inputs[2] if len(inputs) > 2 else None
    found: torch.Tensor = torch.ops.aten.convolution(
        _first(saved, inputs, "input", 0), _first(saved, inputs, "weight", 1), bias, saved["stride"],
        saved["padding"], saved["dilation"], saved["transposed"], saved["output_padding"], saved["groups"],
    )  # fmt: skip
    return found


def _add(sign: float) -> Compute:
    def compute(saved: Saved, inputs: Tensors, out: Out) -> torch.Tensor:
        a, b = inputs
        if a is None or b is None:
            raise ValueError("a constant or data that autograd does not keep")
        return torch.add(a, b, alpha=sign * saved.get("alpha", 1))

    return compute


def _mse(saved: Saved, inputs: Tensors, out: Out) -> torch.Tensor:
    difference = (_first(saved, inputs) - _first(saved, inputs, "target", 1)).square()
    results: tuple[torch.Tensor, ...] = (difference, difference.mean(), difference.sum())
    return results[saved["reduction"]].reshape(_sizes(out))


def _given(inputs: Tensors, place: int) -> torch.Tensor:
    value = inputs[place]
    if value is None:
        raise ValueError("a result that is not known")
    return value


def _slice(saved: Saved, inputs: Tensors, out: Out) -> torch.Tensor:
    window: torch.Tensor = torch.ops.aten.slice(
        _first(saved, inputs),
        _signed(saved["dim"]),
        _signed(saved["start"]),
        _signed(saved["end"]),
        saved["step"],
    )
    return window


_OPS: dict[str, Compute] = {
    "_to_copy": lambda saved, inputs, out: _first(saved, inputs).to(getattr(torch, out[0])),
    "add": _add(1.0),
    "sub": _add(-1.0),
    "mul": _binary(lambda a, b: a * b),
    "div": _binary(lambda a, b: a / b),
    "pow": lambda saved, inputs, out: _first(saved, inputs) ** saved["exponent"],
    "log": _unary(torch.log),
    "log2": _unary(torch.log2),
    "log1p": _unary(torch.log1p),
    "neg": _unary(torch.neg),
    "abs": _unary(torch.abs),
    "square": _unary(torch.square),
    "sqrt": _unary(torch.sqrt),
    "rsqrt": _unary(torch.rsqrt),
    "exp": _unary(torch.exp),
    "reciprocal": _unary(torch.reciprocal),
    "sum": _sum,
    "mean": _mean,
    "clamp": _clamp,
    "clamp_min": _clamp,
    "clamp_max": _clamp,
    "addmm": _addmm,
    "mm": _mm,
    "bmm": _mm,
    "convolution": _convolution,
    "mse_loss": _mse,
    "index": lambda saved, inputs, out: torch.ops.aten.index(_first(saved, inputs), list(saved["indices"])),
    "select": lambda saved, inputs, out: _first(saved, inputs).select(
        _signed(saved["dim"]), _signed(saved["index"])
    ),
    "slice": _slice,
    "where": lambda saved, inputs, out: torch.where(saved["condition"], _given(inputs, 0), _given(inputs, 1)),
    "cat": lambda saved, inputs, out: torch.cat(
        [_given(inputs, i) for i in range(len(inputs))], *_dims(saved)
    ),
    "relu": _unary(torch.relu),
    "sigmoid": _unary(torch.sigmoid),
    "tanh": _unary(torch.tanh),
    "t": _unary(torch.t),
    "view": lambda saved, inputs, out: _first(saved, inputs).reshape(_sizes(out)),
    "_unsafe_view": lambda saved, inputs, out: _first(saved, inputs).reshape(_sizes(out)),
    "reshape_alias": lambda saved, inputs, out: _first(saved, inputs).reshape(_sizes(out)),
    "unsqueeze": lambda saved, inputs, out: _first(saved, inputs).reshape(_sizes(out)),
    "squeeze": lambda saved, inputs, out: _first(saved, inputs).reshape(_sizes(out)),
    "expand": lambda saved, inputs, out: _first(saved, inputs).expand(_sizes(out)),
    "clone": _unary(torch.clone),
    "transpose": lambda saved, inputs, out: _first(saved, inputs).transpose(
        _signed(saved["dim0"]), _signed(saved["dim1"])
    ),
}
"""How each op is computed again. A node keeps what its backward needs, which is often an argument or the result."""
