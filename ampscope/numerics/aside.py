"""CPU tensors of middle size: copied aside when their turn comes, and counted later, one after the other.

Between the operations of a training step the processor has other code and other data at hand: a count that takes
100 µs in a row of its kind takes 300 µs there. A copy is one call.
"""

from __future__ import annotations

import torch

from .chunks import tally
from .counters import Waiting

MOST = 1 << 18
"""Elements of a tensor that gains by it."""

ROOM = 1 << 23
"""Bytes of all that wait."""

_ALIGN = 64


class Aside:
    """Tensors that wait to be counted; not for two threads at once. ROOM bytes from the first tensor on."""

    def __init__(self) -> None:
        self._room: dict[torch.dtype, torch.Tensor] = {}
        self._bytes: torch.Tensor | None = None
        self._end = 0
        self._waiting: list[tuple[Waiting, torch.Tensor]] = []

    def take(self, x: torch.Tensor, dtype: torch.dtype) -> Waiting:
        """Copy a strided tensor of at most MOST elements; `dtype`: that of the tensor it is part of."""
        size = x.element_size()
        start = self._end
        end = start + x.numel() * size
        if end > ROOM:
            self.count()
            start, end = 0, x.numel() * size
        copy = self._all(x.dtype)[start // size : end // size]
        (copy if x.dim() == 1 else copy.view(x.shape)).copy_(x)
        self._end = -(-end // _ALIGN) * _ALIGN
        found = Waiting(dtype)
        self._waiting.append((found, copy))
        return found

    def count(self) -> None:
        """Give all that wait their tally."""
        waiting, self._waiting, self._end = self._waiting, [], 0
        for found, copy in waiting:
            found.tally = tally(copy)

    def _all(self, dtype: torch.dtype) -> torch.Tensor:
        """The whole room as elements of `dtype`."""
        room = self._room.get(dtype)
        if room is None:
            # Normal tensors: those made under the user's inference_mode could not be written outside it.
            with torch.inference_mode(mode=False):
                if self._bytes is None:
                    self._bytes = torch.empty(ROOM, dtype=torch.uint8, device="cpu")
                room = self._room[dtype] = self._bytes.view(dtype)
        return room
