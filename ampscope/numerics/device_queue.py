"""Reads queued on a device: rows of one preallocated buffer, filled without waiting and drained by one copy.

`rows.StatsRows` is the way in. Works on any torch device with float64 and int64, the CPU included (tests).
"""

from __future__ import annotations

import importlib.util
from types import ModuleType
from typing import Any

import torch

from .binades import ExponentHistogram
from .device import ROW, RowKey, add_views, blank_rows, contiguous_pieces, decode, elements, flat_parts
from .scratch import Width

Result = list[tuple[object, ExponentHistogram]]
_Parts = tuple[Width, int, list[torch.Tensor]]


class Drained:
    """Rows on their way to the host; `host` goes back to `pool` once decoded."""

    def __init__(self, host: torch.Tensor, keys: list[RowKey], event: Any, pool: list[torch.Tensor]) -> None:
        self._host, self._keys, self._event, self._pool = host, keys, event, pool

    def ready(self) -> bool:
        """Whether the copy is done. Once True, nothing here touches the device again."""
        if self._event is not None and self._event.query():
            self._event = None
        return self._event is None

    def decode(self) -> Result:
        """Histograms by tag, waiting for the copy if it is not done. To be called once."""
        if self._event is not None:
            self._event.synchronize()
            self._event = None
        rows = self._host.numpy()
        done = [(key.tag, decode(rows[i], key)) for i, key in enumerate(self._keys)]
        self._pool.append(self._host)
        return done


class DeviceQueue:
    """A buffer of `capacity` rows on `device`; kernel: the Triton module, or None for torch operations."""

    def __init__(self, device: torch.device, capacity: int, kernel: ModuleType | None) -> None:
        self.device, self.capacity = device, capacity
        self.kernel = kernel
        self.keys: list[RowKey] = []
        self._rows = blank_rows(device, capacity)
        self._blank = blank_rows(device, 1)
        self._hosts = [self._new_host(), self._new_host()]
        self._order = _StreamOrder(device)

    def read(self, batch: list[tuple[torch.Tensor, object]]) -> None:
        """Queue the reading of (tensor, tag) pairs; the caller has seen to it that there are rows for them."""
        self._order.before_read()
        first = len(self.keys)
        taken = [flat_parts(tensor) for tensor, _ in batch]
        for (tensor, tag), (width, times, views) in zip(batch, taken, strict=True):
            name = str(tensor.dtype).removeprefix("torch.")
            self.keys.append(RowKey(tag, name, elements(views), times, width))
        if self.kernel is not None:
            try:
                self._launch(self.kernel, first, taken)
                return
            except Exception:
                # Triton needs a C compiler and a device that it knows; without them torch does the work.
                self.kernel = None
                self._rows[first : first + len(taken)] = self._blank
        for i, (width, _, views) in enumerate(taken):
            add_views(self._rows[first + i], views, width)

    def _launch(self, kernel: Any, first: int, taken: list[_Parts]) -> None:
        groups: dict[torch.dtype, tuple[list[torch.Tensor], list[int]]] = {}
        for row, (width, _, views) in enumerate(taken, first):
            for view in views:
                # Dense tensors of a dtype that the kernel reads go in whole, the rest in bounded copies.
                direct = view.dtype in kernel.DTYPES and view.is_contiguous() and not view.is_neg()
                for x in [view.view(-1)] if direct else contiguous_pieces(view, width):
                    if x.numel():
                        xs, rows = groups.setdefault(x.dtype, ([], []))
                        xs.append(x)
                        rows.append(row)
        for xs, rows in groups.values():
            if len(xs) == 1:
                kernel.add_one(self._rows[rows[0]], xs[0])
            else:
                kernel.add_many(self._rows, xs, rows)

    def drain(self) -> Drained:
        """Start the copy of all rows read so far to the host, and blank them behind it."""
        self._order.before_drain()
        keys, self.keys = self.keys, []
        host = self._hosts.pop() if self._hosts else self._new_host()
        used = self._rows[: len(keys)]
        host[: len(keys)].copy_(used, non_blocking=True)
        used.copy_(self._blank)
        return Drained(host, keys, self._order.after_drain(), self._hosts)

    def _new_host(self) -> torch.Tensor:
        pin = self.device.type == "cuda"
        with torch.inference_mode(mode=False):
            return torch.empty((self.capacity, ROW), dtype=torch.int64, device="cpu", pin_memory=pin)


class _StreamOrder:
    """Keeps rows consistent when reads come from several CUDA streams: a drain waits (on the device) for every
    stream that read, and a stream that reads after a drain waits for it. Does nothing on other devices."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._streams: list[Any] = []
        self._drained: Any = None

    def before_read(self) -> None:
        if self.device.type != "cuda":
            return
        stream = torch.cuda.current_stream(self.device)
        if stream not in self._streams:
            if self._drained is not None:
                stream.wait_event(self._drained)
            self._streams.append(stream)

    def before_drain(self) -> None:
        if self.device.type == "cuda":
            stream = torch.cuda.current_stream(self.device)
            for other in self._streams:
                if other != stream:
                    stream.wait_stream(other)
            self._streams.clear()

    def after_drain(self) -> Any:
        if self.device.type != "cuda":
            return None
        self._drained = torch.cuda.Event()
        self._drained.record(torch.cuda.current_stream(self.device))
        return self._drained


def triton_kernel(device: torch.device) -> ModuleType | None:
    """The kernel module where it can run: a CUDA device and an importable Triton."""
    if device.type != "cuda" or importlib.util.find_spec("triton") is None:
        return None
    try:
        from . import kernel
    except Exception:
        return None
    return kernel
