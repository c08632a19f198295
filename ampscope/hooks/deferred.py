"""Scalars read from a device without waiting for it: copied asynchronously, resolved when they have arrived."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import _C

from ampscope.hooks.quiet import quiet, readable

Receive = Callable[[float], None]

_PLAIN = (torch.Tensor, torch.nn.Parameter)


def unseen(tensor: torch.Tensor) -> bool:
    """Whether a read of this tensor is seen by nobody: it is no subclass, and no dispatch or function mode, no
    functorch transform and no profiler is active."""
    return type(tensor) in _PLAIN and not (
        _C._len_torch_dispatch_stack()
        or _C._len_torch_function_stack()
        or _C._functorch.peek_interpreter_stack() is not None
        or _C._autograd._profiler_enabled()
    )


@dataclass
class _Waiting:
    values: torch.Tensor
    event: Any
    receivers: list[Receive]


class DeferredScalars:
    """`put` takes a one-element tensor and a receiver for its value as a float.

    On the CPU the receiver is called at once. On CUDA the values of one segment are stacked and copied to
    pinned memory; `poll` hands out what has arrived. Other devices are read at once.
    """

    def __init__(self) -> None:
        self._open: dict[torch.device, list[tuple[torch.Tensor, Receive]]] = {}
        self._waiting: list[_Waiting] = []

    def put(self, tensor: torch.Tensor, receive: Receive) -> None:
        if unseen(tensor) and tensor.is_cpu and tensor.numel() == 1:
            # A read that nothing can see needs no quiet state: this is the whole cost of a pulse on the CPU.
            value = tensor.item()
            receive(abs(value) if isinstance(value, complex) else float(value))
            return
        with quiet():
            source = readable(tensor)
            if source is None or source.numel() != 1:
                return
            if source.is_complex():
                source = source.abs()
            if source.device.type != "cuda":
                receive(float(source.detach().reshape(()).item()))
                return
            copy = source.detach().reshape(()).to(torch.float64)
        self._open.setdefault(source.device, []).append((copy, receive))

    def ship(self) -> None:
        """Send off the copies of everything put since the last call. No synchronisation."""
        for device, entries in self._open.items():
            with quiet(), torch.cuda.device(device):
                stacked = torch.stack([value for value, _ in entries])
                host = torch.empty(stacked.shape, dtype=torch.float64, device="cpu", pin_memory=True)
                host.copy_(stacked, non_blocking=True)
                event = torch.cuda.Event()
                event.record()
            self._waiting.append(_Waiting(host, event, [receive for _, receive in entries]))
        self._open.clear()

    def poll(self, wait: bool = False) -> bool:
        """Deliver what has arrived, in order; True when nothing is left to wait for."""
        while self._waiting:
            first = self._waiting[0]
            if wait:
                first.event.synchronize()
            elif not first.event.query():
                return False
            self._waiting.pop(0)
            with quiet():
                values = first.values.tolist()
            for value, receive in zip(values, first.receivers, strict=True):
                receive(value)
        return not self._open
