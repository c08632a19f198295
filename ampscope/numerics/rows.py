"""Statistics of many tensors without waiting for the device: fixed rows of one buffer, drained by one copy.

On the CPU a read is done at once. On a device each read is queued on the current stream and `drain` copies
all rows to pinned memory asynchronously; nothing synchronises until `Pending.result` is asked for.
"""

from __future__ import annotations

import torch

from .binades import ExponentHistogram
from .chunks import tally


def dtype_name(dtype: torch.dtype) -> str:
    """ "float16" for torch.float16, as the trace stores it."""
    return str(dtype).removeprefix("torch.")


class Pending:
    """Rows on their way to the host."""

    def __init__(self, done: list[tuple[object, ExponentHistogram]]) -> None:
        self._done = done

    def ready(self) -> bool:
        """Whether `result` returns without waiting. Never waits itself."""
        return True

    def result(self) -> list[tuple[object, ExponentHistogram]]:
        """(tag, histogram) in the order of reading; waits for the copy if it must."""
        return self._done


class StatsRows:
    """At most `capacity` tensors between two drains; memory is fixed at construction."""

    def __init__(self, device: torch.device | str, capacity: int) -> None:
        self.device = torch.device(device)
        self.capacity = int(capacity)
        self._read: list[tuple[object, ExponentHistogram]] = []

    def __len__(self) -> int:
        return len(self._read)

    def read(self, tensor: torch.Tensor, tag: object) -> bool:
        """Read one tensor into the next row. Returns False, having read nothing, when no row is left."""
        if len(self._read) >= self.capacity:
            return False
        self._read.append((tag, tally(tensor).freeze(dtype_name(tensor.dtype))))
        return True

    def drain(self) -> Pending:
        """Hand over all rows read so far and start anew."""
        done, self._read = self._read, []
        return Pending(done)


def read_device(tensor: torch.Tensor) -> ExponentHistogram:
    """One tensor through the rows of its device, waiting for the result."""
    rows = StatsRows(tensor.device, 1)
    rows.read(tensor, None)
    return rows.drain().result()[0][1]
