"""Op and kernel times of one segment by torch's own profilers, as rows of the `kernels` table. Never while the user
profiles; gives way when the user starts to.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import _C
from torch._C._autograd import DeviceType
from torch.autograd import profiler

from ampscope.hooks.yielding import profiler_runs, yield_to_profiler

Row = dict[str, Any]
Key = tuple[str, str]

MAX_ROWS = 2000
"""Kept per segment, those with the most time."""

_TENSOR_CORE = re.compile(
    r"tensorop|[hi]mma|w?gmma|nvjet|flash_(fwd|bwd)|[hsi](884|1688|16816|16832|8816)|xmma"
    r"|fmha_cutlass\w+_(f16|bf16)",
    re.IGNORECASE,
)
_PLAIN_CORE = re.compile(r"simt|ffma|xmma\w*f32f32_f32f32_f32", re.IGNORECASE)
_GENERATED = re.compile(r"^triton_|^Cijk", re.IGNORECASE)


def uses_tensor_cores(kernel: str) -> bool | None:
    """Whether the name of a CUDA kernel is that of a tensor-core kernel: the instruction shapes (s884, s1688,
    s16816 ...), tensorop, wgmma, nvjet and the like of cuBLAS, cuDNN, CUTLASS and flash attention. None for
    generated kernels, whose names do not say."""
    if _PLAIN_CORE.search(kernel):
        return False
    if _TENSOR_CORE.search(kernel):
        return True
    return None if _GENERATED.search(kernel) else False


class OpProfile:
    """`start()` at the beginning of a segment, `stop()` at its end, on the same thread.

    If in between the user starts a profiler, the process forks (data-loader workers) or the profiler fails,
    `stop` gives no rows; in the last case `failure` says why.
    """

    def __init__(self) -> None:
        self.own_s = 0.0
        """Host seconds of starting, stopping and summing up; recording itself slows the ops and is not in it."""
        self.failure: str | None = None
        self._source: _Source | None = None
        self._release: Callable[[], None] = _nothing

    def start(self) -> bool:
        """False when a profiler runs already: a second one would end the user's session."""
        began = time.perf_counter()
        self.failure = None
        if self._source is not None or profiler_runs():
            return False
        source: _Source = _Kineto() if _wants_kineto() else _Legacy()
        try:
            source.start()
        except Exception as error:
            self.failure = f"{type(error).__name__}: {error}"
            return False
        self._source = source
        self._release = yield_to_profiler(self._end_quietly)
        _running.add(self)
        self.own_s = time.perf_counter() - began
        return True

    def stop(self) -> list[Row]:
        """End the profile; one row per op (or kernel) and input shapes."""
        began = time.perf_counter()
        try:
            found = self._end()
            return [] if found is None else _rows(found)
        except Exception as error:
            self.failure = f"{type(error).__name__}: {error}"
            return []
        finally:
            self.own_s += time.perf_counter() - began

    def _end(self) -> _Recorded | None:
        """Switch the profiler off; None when it was off."""
        self._release()
        self._release = _nothing
        _running.discard(self)
        source, self._source = self._source, None
        return None if source is None else source.stop()

    def _end_quietly(self) -> None:
        try:
            self._end()
        except Exception as error:
            self.failure = f"{type(error).__name__}: {error}"


def _nothing() -> None:
    return None


_running: weakref.WeakSet[OpProfile] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    """A process that ends while Kineto is on dies of a segmentation fault in its last moment, and a forked child
    hangs or dies when it touches the profiler that it inherited."""
    for profile in list(_running):
        profile._end_quietly()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_end_all)


# -- where the events come from ----------------------------------------------------------------------------------


@dataclass
class _Event:
    """One host event. `left`: duration less that of the events directly within it. Times in ns."""

    key: Key
    start: int
    duration: int
    left: int


@dataclass
class _Recorded:
    """Host events per thread, device events, and the key of the host event by its correlation number."""

    threads: list[list[_Event]]
    device: list[Any] = field(default_factory=list)
    owners: dict[int, Key] = field(default_factory=dict)


class _Source(Protocol):
    def start(self) -> None: ...

    def stop(self) -> _Recorded: ...


def _wants_kineto() -> bool:
    """Only Kineto times kernels. Without a device to time it is avoided: once it was used, a forked child of the
    process that ends in the normal way hangs."""
    on_cuda = torch.cuda.is_available() and torch.cuda.is_initialized()
    return on_cuda or not hasattr(_C._autograd, "_enable_profiler_legacy")


def _shapes_can_be_asked() -> bool:
    """Jagged nested tensors refuse the profiler their sizes, and it complains on stderr of each. The counter says
    whether there ever was one."""
    jagged = sys.modules.get("torch.nested._internal.nested_tensor")
    return not getattr(jagged, "_tensor_id_counter", 0)


class _Legacy:
    """The host-only profiler that torch had before Kineto."""

    def start(self) -> None:
        kind, options = _C._profiler.ProfilerState.CPU, _C._profiler._ExperimentalConfig()
        config = _C._profiler.ProfilerConfig(
            kind, _shapes_can_be_asked(), False, False, False, False, options
        )
        _C._autograd._enable_profiler_legacy(config)

    def stop(self) -> _Recorded:
        return _Recorded([_paired(thread) for thread in _C._autograd._disable_profiler_legacy()])


def _paired(events: list[Any]) -> list[_Event]:
    """Push and pop events of one thread as intervals; what was open at either end is left out."""
    found: list[_Event] = []
    around: list[tuple[Any, list[int]]] = []
    for event in events:
        kind = event.kind()
        if kind == "push":
            around.append((event, [0]))
        elif kind == "pop" and around:
            begin, inner = around.pop()
            duration = round(begin.cpu_elapsed_us(event) * 1000)
            if around:
                around[-1][1][0] += duration
            found.append(_Event(_key(begin), 0, duration, duration - inner[0]))
    return found


class _Kineto:
    """The profiler below torch.profiler, the first start of which would import torch._inductor."""

    def __init__(self) -> None:
        self._profile: Any = None

    def start(self) -> None:
        device = "cuda" if torch.cuda.is_available() else None
        with _silenced():
            self._profile = profiler.profile(record_shapes=_shapes_can_be_asked(), use_device=device)
            self._profile.__enter__()

    def stop(self) -> _Recorded:
        with _silenced():
            self._profile.__exit__(None, None, None)
        recorded = _Recorded([])
        threads: dict[int, list[_Event]] = {}
        for event in self._profile.kineto_results.events():
            if event.device_type() != DeviceType.CPU:
                recorded.device.append(event)
            elif not event.is_async():
                key, duration = _key(event), event.duration_ns()
                recorded.owners[event.correlation_id()] = key
                host = _Event(key, event.start_ns(), duration, duration)
                threads.setdefault(event.start_thread_id(), []).append(host)
        recorded.threads = list(threads.values())
        for events in recorded.threads:
            _subtract_children(events)
        return recorded


@contextlib.contextmanager
def _silenced() -> Iterator[None]:
    """Kineto writes lines to stderr while it starts and stops; its level is set for that moment only."""
    before = os.environ.get("KINETO_LOG_LEVEL")
    os.environ["KINETO_LOG_LEVEL"] = "99"
    try:
        yield
    finally:
        if before is None:
            del os.environ["KINETO_LOG_LEVEL"]
        else:
            os.environ["KINETO_LOG_LEVEL"] = before


def _key(event: Any) -> Key:
    """(name, shapes) as `aten::mm` and `8x8, 8x8`."""
    shapes = ", ".join("x".join(map(str, shape)) for shape in event.shapes() if shape)
    return str(event.name()), shapes


def _subtract_children(events: list[_Event]) -> None:
    """Fill in `left` for the host events of one thread."""
    events.sort(key=lambda e: (e.start, -e.duration))
    around: list[_Event] = []
    for event in events:
        while around and around[-1].start + around[-1].duration <= event.start:
            around.pop()
        if around:
            around[-1].left -= event.duration
        around.append(event)


# -- rows ----------------------------------------------------------------------------------------------------------


@dataclass
class _Totals:
    calls: int = 0
    self_ns: int = 0
    total_ns: int = 0
    device_ns: int = 0


def _rows(recorded: _Recorded) -> list[Row]:
    ops: dict[Key, _Totals] = {}
    for events in recorded.threads:
        for event in events:
            total = ops.setdefault(event.key, _Totals())
            total.calls += 1
            total.self_ns += max(0, event.left)
            total.total_ns += event.duration
    kernels = _kernel_totals(recorded.device, recorded.owners, ops)
    rows = [
        _row(name, "op", t, in_shapes=shapes or None, total_host_s=t.total_ns / 1e9)
        for (name, shapes), t in ops.items()
    ]
    rows += [
        _row(name, "kernel", t, tensor_core=uses_tensor_cores(name), in_shapes=None, total_host_s=None)
        for name, t in kernels.items()
    ]
    rows.sort(key=lambda row: -float(row["self_host_s"] + row["self_device_s"]))
    return rows[:MAX_ROWS]


def _kernel_totals(events: list[Any], owners: dict[int, Key], ops: dict[Key, _Totals]) -> dict[str, _Totals]:
    """Totals by kernel; the op that launched a kernel gets its time as well."""
    kernels: dict[str, _Totals] = {}
    for event in events:
        if event.is_user_annotation():
            continue
        total = kernels.setdefault(event.name(), _Totals())
        total.calls += 1
        total.device_ns += event.duration_ns()
        owner = owners.get(event.linked_correlation_id() or -1)
        if owner is not None:
            ops[owner].device_ns += event.duration_ns()
    return kernels


def _row(name: str, kind: str, t: _Totals, **more: Any) -> Row:
    return {
        "name": name,
        "kind": kind,
        "calls": t.calls,
        "self_host_s": t.self_ns / 1e9,
        "self_device_s": t.device_ns / 1e9,
        "tensor_core": None,
        **more,
    }
