"""The state of torch in which ampscope does its own tensor work: out of sight of the user's modes, autocast,
autograd and profiler. It must leave every piece of thread state exactly as it found it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

import torch
from torch import _C
from torch._ops import _len_torch_dispatch_stack_pre_dispatch
from torch.utils._python_dispatch import _disable_current_modes

_functorch = _C._functorch
_set_tracing_state: Callable[[Any], None] = _C._set_tracing_state  # type: ignore[attr-defined]
_pre_dispatch_modes: Callable[[], int] = _len_torch_dispatch_stack_pre_dispatch
_PLAIN_DISPATCH = _C._disabled_torch_dispatch_impl


class _ThreadState(threading.local):
    depth = 0
    undo: Any = None


_STATE = _ThreadState()


class Quiet:
    """Context manager, stateless and shared: `with quiet():` nests, costs about 3 µs and works on any thread.

    Inside: no gradient recording, autocast off for every device type, no dispatch mode, no torch function
    mode or subclass (so no default device from `with torch.device(...)`), no functorch transform, nothing
    added to a profile or a jit trace that the user records. The default dtype cannot be switched per thread:
    give every new tensor an explicit dtype and device.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        state = _STATE
        if state.depth == 0:
            undo: list[Any] = []
            try:
                _enter(undo)
            except BaseException:
                _leave(undo)
                raise
            state.undo = undo
        state.depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        state = _STATE
        state.depth -= 1
        if state.depth == 0:
            undo, state.undo = state.undo, None
            _leave(undo)


def _enter(undo: list[Any]) -> None:
    """Switch off what could see or change our work; `undo` gets, in order, what brings it back."""
    for guard in (_C.DisableTorchFunction(), _C._DisableAutocast()):
        guard.__enter__()
        undo.append(guard)
    tracing = _C._get_tracing_state()
    if tracing is not None:
        _set_tracing_state(None)
        undo.append(tracing)
    if _functorch.peek_interpreter_stack() is not None:
        transform: Any = _C._DisableFuncTorch()
        transform.__enter__()
        undo.append(transform)
    if _pre_dispatch_modes():
        modes = _disable_current_modes()
        modes.__enter__()
        undo.append(modes)
    for _ in range(_C._len_torch_dispatch_stack()):
        undo.append(_C._pop_torch_dispatch_stack(None))
    if _C._autograd._profiler_enabled():
        _C._autograd._enable_record_function(False)
        undo.append(True)
    if torch.is_grad_enabled():
        _C._set_grad_enabled(False)
        undo.append(None)


def _leave(undo: list[Any]) -> None:
    while undo:
        item = undo.pop()
        if item is None:
            _C._set_grad_enabled(True)
        elif item is True:
            _C._autograd._enable_record_function(True)
        elif hasattr(item, "__torch_dispatch__"):
            _C._push_on_torch_dispatch_stack(item)
        elif isinstance(item, _C.TracingState):
            _set_tracing_state(item)
        else:
            item.__exit__(None, None, None)


_QUIET = Quiet()


def quiet() -> Quiet:
    """The shared `Quiet`: `with quiet(): ...`."""
    return _QUIET


def quiet_in_dispatch() -> AbstractContextManager[None]:
    """`quiet()` at a tenth of its cost, for the inside of a `__torch_dispatch__`: there the dispatcher itself has
    already put autograd, autocast, transforms, traces and the modes above out of the way."""
    return _QUIET if _C._len_torch_dispatch_stack() else _C.DisableTorchFunction()


def is_quiet() -> bool:
    """True while this thread is inside `quiet()`: what runs is ampscope's own work, not the user's."""
    return _STATE.depth > 0


def readable(tensor: torch.Tensor) -> torch.Tensor | None:
    """The tensor whose values may be read, or None when there are none to be had.

    DTensor gives its local shard, sparse COO its values, uncoalesced, a strided nested tensor its elements. None
    for meta and fake tensors, other subclasses with a dispatch of their own (jagged, quantized wrappers),
    tensors wrapped by a functorch transform, zero tensors without memory (forward-mode AD), compressed and
    opaque layouts, and storages that were freed (FSDP).
    """
    with _C.DisableTorchFunction():
        kind = type(tensor)
        if kind is not torch.Tensor and kind.__torch_dispatch__ is not _PLAIN_DISPATCH:
            local = getattr(tensor, "_local_tensor", None)
            return readable(local) if type(local) is torch.Tensor else None
        if (
            tensor.is_meta
            or tensor.is_quantized
            or tensor._is_zerotensor()
            or _functorch.is_functorch_wrapped_tensor(tensor)
        ):
            return None
        if tensor.is_nested:
            with _QUIET:
                return readable(tensor.values())
        if tensor.layout is torch.strided:
            return tensor if tensor.numel() == 0 or tensor.untyped_storage().nbytes() > 0 else None
        if tensor.layout is torch.sparse_coo:
            with _QUIET:
                return readable(tensor._values())
        return None
