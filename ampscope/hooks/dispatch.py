"""A dispatch mode that watches every aten op of one thread and disturbs nothing: at the bottom of the mode stack,
removed by identity, unseen by Dynamo, and never the cause of an exception.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
import weakref
from collections.abc import Callable
from typing import Any

from torch import _C
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from ampscope.hooks.process_state import capturing
from ampscope.hooks.quiet import is_quiet
from ampscope.hooks.redispatch import redispatch
from ampscope.hooks.yielding import profiler_runs, yield_to_profiler

_running: weakref.WeakSet[OpMode] = weakref.WeakSet()
_stranded: weakref.WeakSet[OpMode] = weakref.WeakSet()


class OpMode(TorchDispatchMode):
    """Base of census and watch. Subclasses implement `before`, `after` and `raised`.

    `before` returns a token that `after` or `raised` get back; None leaves the call alone. Outside these three
    nothing of the call is kept. The first exception in one of them switches the mode off: see `failure`.

    The mode sees what the thread that called `start` dispatches, and what the autograd engine runs for it on
    other threads. A tensor subclass with a dispatch of its own is one op: its inner ops are not seen.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.active = False
        self.failure: str | None = None
        """Traceback text of the exception of ours that switched the mode off."""
        self.own_s = 0.0
        """Host seconds spent in `before`, `after` and `raised`."""
        self._release: Callable[[], None] = lambda: None

    # -- to implement ----------------------------------------------------------------------------------------

    def before(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        raise AssertionError("to be implemented by the subclass")

    def after(self, token: Any, out: Any, seconds: float) -> None:
        raise AssertionError("to be implemented by the subclass")

    def raised(self, token: Any, error: BaseException) -> None:
        raise AssertionError("to be implemented by the subclass")

    # -- life ------------------------------------------------------------------------------------------------

    def enter_stack(self) -> bool:
        """Go to the bottom of this thread's mode stack. False, and nothing done, where that would show: while
        the user profiles (each op would appear twice), traces, or captures a CUDA graph. If the user starts a
        profiler later, the mode leaves by itself."""
        if self.active or profiler_runs() or _C._get_tracing_state() or capturing():
            return False
        if not hasattr(TorchDispatchMode, "ignore_compile_internals") and _compiled_anything():
            return False
        _hide_from_dynamo()
        self.failure = None
        # It is there already where another thread than this one has ended it.
        _edit_stack(lambda modes: [self, *(m for m in modes if m is not self)])
        self._release = yield_to_profiler(self.leave_stack)
        self.active = True
        _running.add(self)
        return True

    def leave_stack(self) -> None:
        """Leave the stack wherever the mode is in it. On another thread than that of `enter_stack` the mode
        stays there as a pass-through; so it does within a backward, at whose end the engine puts the stack back:
        call `sweep` then."""
        self.active = False
        self._release()
        _running.discard(self)
        if _C._current_graph_task_id() != -1:
            _stranded.add(self)
        _edit_stack(lambda modes: [m for m in modes if m is not self])

    # -- dispatch --------------------------------------------------------------------------------------------

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # True would wrap __torch_dispatch__ into a function that imports torch._dynamo at the first op.
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if not isinstance(func, OpOverload):
            # A higher-order op such as cond is dispatched from Python: it is control flow, and no aten op.
            return func(*args, **kwargs)
        token = None
        began = time.perf_counter()
        if self.active and not is_quiet():
            try:
                with _C.DisableTorchFunction():
                    token = self.before(func, args, kwargs)
            except Exception:
                self._failed()
        called = time.perf_counter()
        try:
            out = redispatch(func, args, kwargs)
        except BaseException as error:
            if token is not None:
                self._after_error(token, error)
            raise
        returned = time.perf_counter()
        if token is not None:
            try:
                with _C.DisableTorchFunction():
                    self.after(token, out, returned - called)
            except Exception:
                self._failed()
        self.own_s += time.perf_counter() - returned + called - began
        return out

    def _after_error(self, token: Any, error: BaseException) -> None:
        try:
            self.raised(token, error)
        except Exception:
            self._failed()

    def _failed(self) -> None:
        self.failure = traceback.format_exc(limit=12)
        self.active = False


def _edit_stack(edit: Any) -> None:
    """Replace this thread's dispatch mode stack by `edit(stack)`, bottom first.

    Below `TorchDispatchMode.__enter__`, which also sets flags that Dynamo and Inductor read.
    """
    modes = [_C._pop_torch_dispatch_stack(None) for _ in range(_C._len_torch_dispatch_stack())]
    modes.reverse()
    try:
        modes = edit(modes)
    finally:
        for mode in modes:
            _C._push_on_torch_dispatch_stack(mode)


def stranded() -> bool:
    """Whether a mode has left the stack within a backward and is to be swept out of it."""
    return bool(_stranded)


def sweep() -> None:
    """Take out of this thread's stack what left it during the backward that has just ended."""
    if _stranded and _C._current_graph_task_id() == -1:
        gone = {id(mode) for mode in _stranded if not mode.active}
        _stranded.clear()
        _edit_stack(lambda modes: [m for m in modes if id(m) not in gone])


def _hide_from_dynamo() -> None:
    """Tell the frame evaluator to leave the handler and all that it calls alone, where a compiled function runs
    eager parts. Repeated at each start because torch._dynamo.reset() forgets it."""
    evaluator = _C._dynamo.eval_frame
    skip = evaluator._FrameAction.SKIP
    evaluator.set_code_exec_strategy(
        OpMode.__torch_dispatch__.__code__, evaluator._FrameExecStrategy(skip, skip)
    )


def _compiled_anything() -> bool:
    return "torch._dynamo" in sys.modules


def _after_fork() -> None:
    """A forked child (a data-loader worker) inherits the thread's mode stack: take ours out of it."""
    for mode in list(_running):
        mode.leave_stack()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
