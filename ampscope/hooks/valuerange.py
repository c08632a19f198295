"""The cheapest look at a tensor's values that a per-op collector can take on the tensor's own device, and a cache
that reads nothing twice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from ampscope.numerics.layout import pieces, squeeze_strides

PIECE = 1 << 22
"""Elements copied at a time where a copy is needed."""

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
    copies = x.element_size() < _NARROWEST or not x.is_contiguous()
    found = merged([_range(part) for part in pieces(x, PIECE)]) if copies else _range(x)
    return found if times == 1 or found is None else _repeated(found, times)


def _range(x: torch.Tensor) -> ValueRange:
    if x.element_size() < _NARROWEST:
        x = x.to(torch.float32)
    low, high = _extremes(x)
    if not (math.isfinite(low) and math.isfinite(high)):
        found = merged([_with_nonfinite(part) for part in pieces(x, PIECE)])
        assert found is not None
        return found
    zeros = x.numel() - int(torch.count_nonzero(x)) if low <= 0.0 <= high else 0
    return ValueRange(x.numel(), 0, 0, 0, zeros, max(high, -low), low)


def _with_nonfinite(x: torch.Tensor) -> ValueRange:
    finite = x[torch.isfinite(x)]
    n = finite.numel()
    lost = x.numel() - n
    nan = int(torch.count_nonzero(torch.isnan(x)))
    posinf = int(torch.count_nonzero(x == math.inf))
    if n == 0:
        return ValueRange(x.numel(), lost, nan, posinf, 0, None, None)
    low, high = _extremes(finite)
    zeros = n - int(torch.count_nonzero(finite))
    return ValueRange(x.numel(), lost, nan, posinf, zeros, max(high, -low), low)


def _repeated(r: ValueRange, times: int) -> ValueRange:
    return ValueRange(
        times * r.numel,
        times * r.nonfinite,
        times * r.nan,
        times * r.posinf,
        times * r.zeros,
        r.amax,
        r.amin,
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
