"""What this process and this thread are in the middle of: autocast in force, memory, CUDA graph capture. Reads state
only; initialises no device.
"""

from __future__ import annotations

import os

import torch

from ampscope.hooks.collector import dtype_name


def autocast_dtype(device: str | None = None) -> tuple[str | None, str | None]:
    """(device type, dtype) of the autocast in force on this thread, for `device` or the first that is on."""
    if not torch._C._is_any_autocast_enabled():
        return None, None
    for kind in (device,) if device is not None else ("cuda", "cpu"):
        try:
            if torch.is_autocast_enabled(kind):
                return kind, dtype_name(torch.get_autocast_dtype(kind))
        except RuntimeError:
            # A device type without autocast, such as meta.
            continue
    return None, None


def capturing() -> bool:
    """A CUDA graph is being captured: an event recorded now would become part of it."""
    return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


def resident_bytes() -> int | None:
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def device_allocated() -> int | None:
    if not torch.cuda.is_initialized():
        return None
    return torch.cuda.memory_allocated()
