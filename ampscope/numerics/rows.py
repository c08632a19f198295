"""Statistics of many tensors without waiting for the device: what the recorder reads tensors into.

On the CPU (and on devices without float64) a large tensor is read at once; of others only a copy is taken, to be
counted with their like. On CUDA a read is queued on the current stream; nothing waits until `Pending.result` is
asked for.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from .binades import ExponentHistogram
from .chunks import tally
from .counters import Waiting
from .device_queue import DeviceQueue, Drained, Result, triton_kernel
from .together import Together

_READ_AT_ONCE = ("cpu", "mps")


def dtype_name(dtype: torch.dtype) -> str:
    """ "float16" for torch.float16, as the trace stores it."""
    return str(dtype).removeprefix("torch.")


class Pending:
    """Rows handed over by `StatsRows.drain`. Once `ready` has said True, any thread may call `result`, and it
    touches no device."""

    def __init__(self, done: Result, drained: Drained | None = None) -> None:
        self._done, self._drained = done, drained

    def ready(self) -> bool:
        """Whether `result` returns without waiting. Never waits itself."""
        return self._drained is None or self._drained.ready()

    def result(self) -> Result:
        """(tag, histogram) in the order of reading; waits for the copy if it must. May be called again."""
        if self._drained is not None:
            self._done = self._drained.decode()
            self._drained = None
        return self._done


class StatsRows:
    """At most `capacity` tensors of `device` between two drains; memory is fixed at construction.

    For one thread at a time. Sparse tensors make a device wait (torch counts their elements); nothing else
    does. On a device without float64 (mps) every read waits.
    """

    def __init__(self, device: torch.device | str, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"StatsRows needs room for at least one tensor, not {capacity}.")
        self.device = torch.device(device)
        self.capacity = int(capacity)
        self._done: list[tuple[object, ExponentHistogram | Waiting]] = []
        self._together = Together() if self.device.type == "cpu" else None
        self._queue: DeviceQueue | None = None
        if self.device.type not in _READ_AT_ONCE:
            self._queue = DeviceQueue(self.device, self.capacity, triton_kernel(self.device))

    def __len__(self) -> int:
        return len(self._done) if self._queue is None else len(self._queue.keys)

    def read(self, tensor: torch.Tensor, tag: object) -> bool:
        """Read one tensor into the next row; False, having read nothing, when no row is left."""
        if self._queue is not None:
            return self.read_many([(tensor, tag)]) == 1
        if len(self._done) == self.capacity:
            return False
        self._done.append((tag, self._read_now(tensor)))
        return True

    def read_many(self, tensors: Iterable[tuple[torch.Tensor, object]]) -> int:
        """Read (tensor, tag) pairs, on CUDA in one kernel launch per dtype; returns how many found a row."""
        batch = list(tensors)[: self.capacity - len(self)]
        if self._queue is not None:
            self._queue.read(batch)
        else:
            self._done += [(tag, self._read_now(x)) for x, tag in batch]
        return len(batch)

    def _read_now(self, x: torch.Tensor) -> ExponentHistogram | Waiting:
        waiting = None if self._together is None else self._together.take(x)
        return waiting or tally(x).freeze(dtype_name(x.dtype))

    def drain(self) -> Pending:
        """Hand over all rows read so far and start anew: one asynchronous copy, no waiting."""
        if self._queue is not None and self._queue.keys:
            return Pending([], self._queue.drain())
        done, self._done = self._done, []
        if self._together is not None:
            self._together.count()
        return Pending([(tag, _histogram(found)) for tag, found in done])


def _histogram(found: ExponentHistogram | Waiting) -> ExponentHistogram:
    if isinstance(found, ExponentHistogram):
        return found
    assert found.tally is not None
    return found.tally.freeze(dtype_name(found.dtype))


def read_device(tensor: torch.Tensor) -> ExponentHistogram:
    """One tensor through the rows of its device, waiting for the result."""
    rows = StatsRows(tensor.device, 1)
    rows.read(tensor, None)
    return rows.drain().result()[0][1]
