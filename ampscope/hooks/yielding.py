"""Makes room for a profiler that the user starts while one of our own instruments runs: torch allows one profiler at
a time, and shows every op twice under a dispatch mode.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

from torch import _C
from torch.autograd import profiler, profiler_legacy

_STARTS: tuple[tuple[Any, str], ...] = (
    (profiler.profile, "__enter__"),
    (profiler.profile, "_prepare_trace"),
    (profiler.profile, "_start_trace"),
    (profiler.emit_nvtx, "__enter__"),
    (profiler.emit_itt, "__enter__"),
    (profiler_legacy.profile, "__enter__"),
)
"""What every way to start a profiler goes through, torch.profiler included."""

_waiting: list[Callable[[], None]] = []
_originals: list[tuple[Any, str, Any]] = []


def profiler_runs() -> bool:
    """A profiler of torch is on in this thread."""
    return bool(profiler._is_profiler_enabled) or _C._autograd._profiler_enabled()


def yield_to_profiler(stop: Callable[[], None]) -> Callable[[], None]:
    """Have `stop` called right before the user starts a profiler; it must not raise. Returns what ends that
    (idempotent, and called by itself before `stop`)."""
    _waiting.append(stop)
    if not _originals:
        for owner, name in _STARTS:
            original = owner.__dict__.get(name)
            if original is not None:
                setattr(owner, name, _announcing(original))
                _originals.append((owner, name, original))

    def release() -> None:
        if stop in _waiting:
            _waiting.remove(stop)
        if not _waiting:
            while _originals:
                owner, name, original = _originals.pop()
                setattr(owner, name, original)

    return release


def _announcing(original: Any) -> Any:
    @functools.wraps(original)
    def start(self: Any, *args: Any, **kwargs: Any) -> Any:
        for stop in tuple(_waiting):
            with contextlib.suppress(Exception):
                stop()
        return original(self, *args, **kwargs)

    return start
