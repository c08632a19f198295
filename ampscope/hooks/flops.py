"""Floating-point operations of matmuls, convolutions and attention, by the formulas that torch registers for its
own FlopCounterMode. Counts a multiplication and an addition as two.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

_Formula = Callable[..., float]
_formulas: dict[Any, _Formula | None] = {}


def flops_of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> float | None:
    """Operations of one call; None for an op that is neither matmul, convolution nor attention."""
    if func not in _formulas:
        _formulas[func] = _formula(func)
    formula = _formulas[func]
    if formula is None:
        return None
    try:
        return float(formula(*args, **kwargs, out_val=out))
    except Exception:
        # A formula that does not know this call (symbolic or nested shapes, out=): not counted.
        return None


def _formula(func: Any) -> _Formula | None:
    packet = getattr(func, "_overloadpacket", None)
    # Composite ops, dispatched as a whole only under inference mode.
    if packet in (torch.ops.aten.linear, torch.ops.aten.matmul):
        return _product
    found: _Formula | None = flop_registry.get(packet)
    return found


def _product(first: torch.Tensor, *_: Any, out_val: torch.Tensor, **__: Any) -> float:
    return 2.0 * math.prod(out_val.shape) * first.shape[-1]
