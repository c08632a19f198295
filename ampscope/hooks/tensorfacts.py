"""What can be said of one tensor argument or result: identity, dtype, shape, bytes and, where it may be read, the
range of its values. Keeps no tensor.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from ampscope.hooks.identity import StorageIds
from ampscope.hooks.quiet import readable
from ampscope.hooks.valuerange import RangeCache, ValueRange


@dataclass(frozen=True)
class Limits:
    """What one segment of census or watch may cost."""

    rows: int = 200_000
    """Rows kept; ops after that are not recorded."""
    elements: int = 1 << 24
    """Tensors with more elements are not read (16 times as many on a device other than the CPU)."""
    seconds: float = 30.0
    """Own host time; after that rows come without values."""
    shadow_flops: float = 2.0**30
    """Largest op that is recomputed."""
    shadow_elements: int = 1 << 22
    """Largest output that is recomputed, and input."""
    shadow_seconds: float = 5.0
    """Own time for recomputing; none after that."""


@dataclass
class TensorFacts:
    """One tensor argument or result."""

    identity: int
    dtype: str
    shape: str
    nbytes: int
    device: str
    value: torch.Tensor | None
    """What may be read of it, while the call lasts; None for tensors without readable floating-point values."""
    range: ValueRange | None = None
    whole_storage: bool = False
    """It covers all of its storage."""


class FactReader:
    """Reads each value once: what was a result before costs nothing as an argument. Call it under `quiet()`."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.read_values = True
        self.ids = StorageIds()
        self.ranges = RangeCache(limits.elements)

    def facts(self, tensor: torch.Tensor) -> TensorFacts:
        """Facts of one tensor; a hostile subclass gets question marks."""
        try:
            value = readable(tensor)
            dtype = tensor.dtype
            identity = self.ids.of(tensor if value is None else value)
            shape = _shape_text(tensor.shape)
            nbytes = int(tensor.numel()) * dtype.itemsize
            device = tensor.device.type
        except Exception:
            return TensorFacts(0, "?", "?", 0, "?", None)
        if value is not None and not (dtype.is_floating_point or dtype.is_complex):
            value = None
        whole = value is not None and value.untyped_storage().nbytes() == nbytes
        return TensorFacts(identity, dtype_text(dtype), shape, nbytes, device, value, None, whole)

    def read(self, facts: list[TensorFacts]) -> None:
        if not self.read_values:
            return
        for f in facts:
            if f.value is None:
                continue
            if f.device != "cpu":
                if f.device == "cuda" and torch.cuda.is_current_stream_capturing():
                    continue
                self.ranges.max_elements = 16 * self.limits.elements
            else:
                self.ranges.max_elements = self.limits.elements
            with contextlib.suppress(RuntimeError):
                # No kernel for this kind of tensor: that is no reason to end the census.
                f.range = self.ranges.of(f.value, f.identity)

    def prune(self) -> set[int]:
        """Forget what was freed; the identities that are left."""
        left = self.ids.prune()
        self.ranges.clear()
        return left


@cache
def dtype_text(dtype: torch.dtype) -> str:
    """float16 for torch.float16."""
    return str(dtype).removeprefix("torch.")


def _shape_text(shape: torch.Size) -> str:
    return "x".join(map(str, shape))


def collect(value: Any, into: list[torch.Tensor]) -> None:
    """Append the tensors in nested lists, tuples and dicts."""
    if isinstance(value, torch.Tensor):
        into.append(value)
    elif isinstance(value, (list, tuple)):
        for item in value:
            collect(item, into)
    elif isinstance(value, dict):
        for item in value.values():
            collect(item, into)
