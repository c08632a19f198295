"""The cheapest look at a tensor's values that a per-op collector can take on the tensor's own device, and a cache
that reads nothing twice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from ampscope.numerics.layout import squeeze_strides

_NARROWEST = 2
"""aminmax has no kernel below two bytes per element."""


@dataclass(frozen=True)
class ValueRange:
    """amax: largest finite |x|; amin: smallest finite value, signed; None when no element is finite. The counts
    are elements; nonfinite is NaN and both infinities. Complex elements count as two."""

    numel: int
    nonfinite: int
    nan: int
    posinf: int
    zeros: int
    amax: float | None
    amin: float | None

    @property
    def only_neginf(self) -> bool:
        """What is not finite is -inf: the mark of a mask."""
        return self.nonfinite > 0 and self.nan == 0 and self.posinf == 0


def value_range(tensor: torch.Tensor) -> ValueRange | None:
    """Range of a floating-point or complex tensor that `readable()` returned; call it under `quiet()`.

    One pass for range and non-finites, one more for zeros where zeros are possible. An expanded dimension is
    read once. Synchronises a CUDA device once, twice when something is not finite. None for an empty tensor.
    """
    if tensor.numel() == 0:
        return None
    x = tensor.detach()
    if x.is_complex():
        x = torch.view_as_real(x.resolve_conj())
    if x.is_neg():
        x = x.resolve_neg()
    times = 1
    if not x.is_contiguous():
        x, times = squeeze_strides(x)
    if x.element_size() < _NARROWEST:
        x = x.to(torch.float32)
    low, high = _extremes(x)
    if not (math.isfinite(low) and math.isfinite(high)):
        return _with_nonfinite(x, times)
    zeros = x.numel() - int(torch.count_nonzero(x)) if low <= 0.0 <= high else 0
    return ValueRange(x.numel() * times, 0, 0, 0, zeros * times, max(high, -low), low)


def _with_nonfinite(x: torch.Tensor, times: int) -> ValueRange:
    finite = x[torch.isfinite(x)]
    n = finite.numel()
    nan = int(torch.count_nonzero(torch.isnan(x)))
    posinf = int(torch.count_nonzero(x == math.inf))
    lost = x.numel() - n
    if n == 0:
        return ValueRange(lost * times, lost * times, nan * times, posinf * times, 0, None, None)
    low, high = _extremes(finite)
    zeros = n - int(torch.count_nonzero(finite))
    return ValueRange(
        x.numel() * times, lost * times, nan * times, posinf * times, zeros * times, max(high, -low), low
    )


def _extremes(x: torch.Tensor) -> tuple[float, float]:
    low, high = torch.aminmax(x)
    if x.is_cpu:
        return float(low.item()), float(high.item())
    both = torch.stack((low, high)).to(torch.float64).tolist()
    return float(both[0]), float(both[1])


def merged(ranges: list[ValueRange]) -> ValueRange | None:
    """Range of several tensors together; None for none."""
    if len(ranges) < 2:
        return ranges[0] if ranges else None
    amax = [r.amax for r in ranges if r.amax is not None]
    amin = [r.amin for r in ranges if r.amin is not None]
    return ValueRange(
        sum(r.numel for r in ranges),
        sum(r.nonfinite for r in ranges),
        sum(r.nan for r in ranges),
        sum(r.posinf for r in ranges),
        sum(r.zeros for r in ranges),
        max(amax, default=None),
        min(amin, default=None),
    )


class RangeCache:
    """Ranges by storage identity. An in-place op must be told with `wrote`; writes that no dispatcher saw (by
    compiled code) are told by the tensor's version counter."""

    def __init__(self, max_elements: int) -> None:
        self.max_elements = max_elements
        """Larger tensors are not read."""
        self.elements = 0
        """Elements read so far."""
        self._writes: dict[int, int] = {}
        self._ranges: dict[tuple[object, ...], ValueRange | None] = {}

    def __len__(self) -> int:
        return len(self._ranges)

    def clear(self) -> None:
        self._ranges.clear()

    def wrote(self, identity: int) -> None:
        self._writes[identity] = self._writes.get(identity, 0) + 1

    def of(self, tensor: torch.Tensor, identity: int) -> ValueRange | None:
        """Range of a readable tensor; None when it is empty, too large or has no storage to know it by."""
        numel = tensor.numel()
        if numel > self.max_elements:
            return None
        key = self._key(tensor, identity, numel) if identity else None
        if key is not None and key in self._ranges:
            return self._ranges[key]
        self.elements += numel
        found = value_range(tensor)
        if key is not None:
            self._ranges[key] = found
        return found

    def _key(self, tensor: torch.Tensor, identity: int, numel: int) -> tuple[object, ...]:
        version = -1 if tensor.is_inference() else tensor._version
        layout = None if tensor.is_contiguous() else _gaps(tensor)
        return (
            identity,
            self._writes.get(identity, 0),
            version,
            tensor.dtype,
            tensor.storage_offset(),
            numel,
            layout,
            tensor.is_neg(),
        )


def _gaps(tensor: torch.Tensor) -> tuple[tuple[int, int], ...] | None:
    """(stride, size) of the dimensions, or None when the elements fill one piece of memory once each, so that
    every permutation of them has the same range."""
    strides = sorted(zip(tensor.stride(), tensor.shape, strict=True))
    dense = 1
    for stride, size in strides:
        if size == 1:
            continue
        if stride != dense:
            return tuple(strides)
        dense *= size
    return None
