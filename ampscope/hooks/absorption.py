"""Increments that a half-precision result rounds away: a running sum that stops, an EMA copy or a second moment that
stands still. Compares the values of one op before and after; changes none.
"""

from __future__ import annotations

from typing import Any

import torch

from ampscope.hooks.oprow import PendingOp
from ampscope.hooks.quiet import quiet, readable

HALF = (torch.float16, torch.bfloat16)

ELEMENTS = 1 << 20
"""Larger tensors are left out: a census reads many."""

_ADDS = ("add", "sub", "lerp", "addcmul", "addcdiv", "mul")


class Absorption:
    """`before` keeps a copy of what an op overwrites, `after` fills the row's `absorbed`."""

    def before(self, op: PendingOp) -> None:
        kind = _kind(op.func)
        if kind is None:
            return
        starts = _tensors(op.args[0]) if op.args else []
        if (
            not starts
            or any(t.dtype not in HALF for t in starts)
            or sum(t.numel() for t in starts) > ELEMENTS
        ):
            return
        with quiet():
            held = [readable(t) for t in starts]
            if any(t is None or (t.requires_grad and not _in_place(op.func)) for t in held):
                return
            op.start = [
                t.detach().clone() if _in_place(op.func) else t.detach() for t in held if t is not None
            ]

    def after(self, op: PendingOp, out: Any) -> None:
        """Count the elements that equal what they started from although the increment was not zero."""
        start, op.start = op.start, None
        if start is None:
            return
        kind = _kind(op.func)
        results = _tensors(out) or _tensors(op.args[0])
        with quiet():
            total = 0
            for index, (old, new) in enumerate(zip(start, results, strict=False)):
                if new.shape != old.shape or new.dtype != old.dtype:
                    return
                wanted = _increment(kind, op.args, op.kwargs, index, old)
                if wanted is None:
                    return
                same = (new.detach() == old) & wanted & torch.isfinite(old)
                total += int(same.sum(dtype=torch.int64))
        op.row["absorbed"] = total


def _kind(func: Any) -> str | None:
    name = func._schema.name.removeprefix("aten::").removeprefix("_foreach_").removesuffix("_")
    return name if name in _ADDS else None


def _in_place(func: Any) -> bool:
    return bool(func._schema.name.endswith("_"))


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for t in value if isinstance(t, torch.Tensor)]
    return []


def _at(value: Any, index: int) -> Any:
    """The operand that belongs to the index-th tensor: foreach ops take lists of tensors or of numbers."""
    return value[index] if isinstance(value, (list, tuple)) else value


def _increment(
    kind: str | None, args: tuple[Any, ...], kwargs: dict[str, Any], index: int, old: torch.Tensor
) -> Any:
    """Where exact arithmetic would change `old`: a boolean tensor or a bool; None where it cannot be told."""
    if len(args) < 2:
        return None
    first = _at(args[1], index)
    if kind == "mul":
        return (first != 1) & (old != 0)
    if kind in ("add", "sub"):
        alpha = kwargs.get("alpha", args[2] if len(args) > 2 else 1)
        return None if alpha == 0 else _nonzero(first)
    if kind == "lerp":
        return first.to(torch.float32) != old.to(torch.float32)
    second = _at(args[2], index) if len(args) > 2 else None
    if second is None:
        return None
    if kind == "addcdiv":
        return _nonzero(first)
    return _nonzero(first) & _nonzero(second)


def _nonzero(value: Any) -> Any:
    return value != 0
