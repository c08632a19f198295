"""A small session for tests of the op-level collectors: a module stack by global hooks, phases, parameter names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from ampscope.hooks.quiet import Quiet, quiet


class View:
    """Names come from `model`; a module of another model has no name."""

    def __init__(self, model: torch.nn.Module | None = None) -> None:
        self.stack: list[torch.nn.Module] = []
        self.names: dict[int, str] = {}
        self.params: dict[int, str] = {}
        self.in_optimizer = False
        if model is not None:
            self.names = {id(m): name or type(model).__name__ for name, m in model.named_modules()}
            self.params = {id(p): name for name, p in model.named_parameters()}

    def phase(self) -> str:
        if self.in_optimizer:
            return "optimizer"
        if torch._C._current_graph_task_id() != -1:
            return "recompute" if self.stack else "backward"
        return "forward" if self.stack or torch._C._is_any_autocast_enabled() else "other"

    def micro(self) -> int:
        return 0

    def module(self) -> str | None:
        return self.names.get(id(self.stack[-1])) if self.stack else None

    def param_name(self, tensor: torch.Tensor) -> str | None:
        return self.params.get(id(tensor))

    def quiet(self) -> Quiet:
        return quiet()


@contextmanager
def watching(model: torch.nn.Module | None = None) -> Iterator[View]:
    """A `View` whose module stack follows the forwards of this process."""
    view = View(model)

    def enter(module: torch.nn.Module, args: Any) -> None:
        if not torch.compiler.is_compiling():
            view.stack.append(module)

    def leave(module: torch.nn.Module, args: Any, output: Any) -> None:
        if not torch.compiler.is_compiling():
            while view.stack and view.stack.pop() is not module:
                pass

    handles = [
        register_module_forward_pre_hook(enter),
        register_module_forward_hook(leave, always_call=True),
    ]
    try:
        yield view
    finally:
        for handle in handles:
            handle.remove()


class Log(torch.utils._python_dispatch.TorchDispatchMode):
    """A user's own dispatch mode: names of the ops that it sees."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def mode_stack() -> list[Any]:
    """This thread's dispatch modes, bottom first."""
    return list(torch.utils._python_dispatch._get_current_dispatch_mode_stack())
