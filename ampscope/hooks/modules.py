"""Global forward hooks: the stack of running modules, root forwards, and at sampled segments what each module saw.

Never touches instances: hooks on instances would break pickling and be copied into EMA models.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.modules import module as registry
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from ampscope.hooks.clock import Segment
from ampscope.hooks.collector import Collector, dtype_name
from ampscope.hooks.members import children
from ampscope.hooks.process_state import autocast_dtype
from ampscope.hooks.quiet import is_quiet
from ampscope.hooks.sentinel import float32_sum
from ampscope.hooks.tracebacks import has_foreign_hook

ROOT_SENTINELS = 8
"""Root outputs summed per segment: a cell called at every time step is a root each time."""


MAX_ITEMS = 1024
"""Looked at in each list of inputs or outputs: models return lists of a hundred thousand numbers too."""


@dataclass
class _Seen:
    """What one module did in the current segment."""

    name: str
    module_class: str
    order: int
    is_root: bool
    calls: int = 0
    forward_s: float = 0.0
    row: dict[str, Any] = field(default_factory=dict)


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors in nested tuples, lists, dicts and dataclass-like outputs, in order; three levels deep, MAX_ITEMS
    wide. What does not let itself be looked into holds none."""
    if type(value) is torch.Tensor:
        return [value]
    found: list[torch.Tensor] = []
    with contextlib.suppress(Exception):
        _collect(value, found, 3)
    return found


def _collect(value: Any, found: list[torch.Tensor], depth: int) -> None:
    if isinstance(value, torch.Tensor):
        found.append(value)
        return
    if depth == 0:
        return
    items: Any = ()
    if isinstance(value, dict):
        items = value.values()
    elif isinstance(value, (list, tuple)):
        items = value
    elif (fields := getattr(type(value), "__dataclass_fields__", None)) is not None:
        items = (getattr(value, name, None) for name in fields)
    for item in itertools.islice(items, MAX_ITEMS):
        _collect(item, found, depth - 1)


def short_dtype(tensor: torch.Tensor) -> str:
    return dtype_name(tensor.dtype)


class Modules(Collector):
    """Feeds the session's module stack and phase clock. `on_output(module, name, outputs)` is called on sampled
    segments, `on_bad_root(module, inputs)` when a root output is not finite, and the Blocks collector for the
    outputs that it wants."""

    name = "modules"

    def __init__(self, session: Any, on_output: Any, on_bad_root: Any, blocks: Any) -> None:
        super().__init__(session)
        self._handles: list[Any] = []
        self._rests = 0
        self._theirs: Any = None
        self._detailed = False
        self._seen: dict[int, _Seen] = {}
        self._began: dict[int, list[float]] = {}
        self._strangers: set[int] = set()
        """Modules that no root lists among its own: their names are their classes."""
        self._sums = 0
        self._root_began = 0.0
        self._on_output = on_output
        self._on_bad_root = on_bad_root
        self._blocks = blocks
        self._wanted: dict[int, str] = blocks.wanted

    def install(self) -> None:
        self._root_enter = self.guarded(self._root_enter_)
        self._root_exit = self.guarded(self._root_exit_)
        self._enter = self.guarded(self._enter_)
        self._exit = self.guarded(self._exit_)
        # OptimizedModule warns of global hooks; ours return at once in compiled code and are no reason to.
        self._theirs, registry._has_any_global_hook = registry._has_any_global_hook, has_foreign_hook
        self._register()

    def _register(self) -> None:
        self._handles = [
            register_module_forward_pre_hook(self._pre),
            register_module_forward_hook(self._post, always_call=True),
        ]

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        if registry._has_any_global_hook is has_foreign_hook:
            registry._has_any_global_hook = self._theirs
        super().remove()

    def rest(self) -> None:
        super().rest()
        if not has_foreign_hook():  # the order among hooks is theirs to rely on
            for handle in self._handles:
                handle.remove()
            self._handles = []

    def wake(self) -> None:
        super().wake()
        self._rests += 1
        if not self._handles:
            self._register()

    def segment_start(self, segment: Segment) -> None:
        self._detailed = segment.sampled
        self._seen.clear()
        self._began.clear()
        self._sums = 0

    # -- hooks: first what every call pays --------------------------------------------------------------------

    def _pre(self, module: torch.nn.Module, args: Any) -> None:
        if torch.compiler.is_compiling() or self.session.counting:
            return
        if self.dead or is_quiet() or torch._C._get_tracing_state():
            return
        try:
            here = self.session.here
            stack = here.modules
            if here.rests != self._rests:
                # What began before a rest, on another thread, has ended unseen.
                here.rests = self._rests
                stack.clear()
            if not stack:
                self._root_enter(module, args)
            elif here.uncast:
                here.uncast = False
            stack.append(module)
            if self._detailed:
                self._enter(module, args)
        except Exception as error:
            self.session.fail(self, error)

    def _post(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        # A forward that began before counting did, on another thread, still has to leave the stack.
        if torch.compiler.is_compiling() or (self.session.counting and not self.session.modules):
            return
        if self.dead or is_quiet() or torch._C._get_tracing_state():
            return
        try:
            stack = self.session.modules
            # A recompute that stopped early or a forward that raised leaves modules behind: drop them here.
            while stack and stack.pop() is not module:
                pass
            if id(module) in self._wanted:
                self._blocks.on_output(module, output)
            if self._detailed:
                self._exit(module, args, output, not stack)
            if not stack:
                self.session.here.uncast = False
                self._root_exit(module, args, output)
        except Exception as error:
            self.session.fail(self, error)

    # -- roots --------------------------------------------------------------------------------------------------

    def _root_enter_(self, module: torch.nn.Module, args: Any) -> None:
        session = self.session
        if torch._C._current_graph_task_id() != -1:
            return
        session.saw_amp = True
        if session.names.add_root(module):
            session.new_root(module)
        if not torch.is_grad_enabled():
            return
        self._root_began = time.perf_counter()
        session.work_begins()
        tensors = tensors_in(args)
        device = tensors[0].device.type if tensors else None
        kind, dtype = autocast_dtype(device)
        segment = session.segment
        segment.autocast_device, segment.autocast_dtype = kind, dtype
        session.here.uncast, session.here.device = dtype is None, device
        if device is not None:
            session.device_seen(device)
        session.mark("forward", True)

    def _root_exit_(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        session = self.session
        if not torch.is_grad_enabled() or torch._C._current_graph_task_id() != -1:
            return
        segment = session.segment
        session.mark("forward", False)
        if self._root_began:
            segment.spent["forward"] += time.perf_counter() - self._root_began
            self._root_began = 0.0
        if self._sums >= ROOT_SENTINELS:
            return
        for tensor in tensors_in(output)[:2]:
            if tensor.is_floating_point() and tensor.requires_grad:
                self._sums += 1
                self._sentinel(tensor, segment)
        if segment.nonfinite_forward or session.alarmed:
            self._on_bad_root(module, tensors_in(args))

    def _sentinel(self, tensor: torch.Tensor, segment: Segment) -> None:
        total = float32_sum(tensor)
        if total is None:
            return

        def receive(value: float) -> None:
            segment.root_sum = value
            if value - value != 0.0:
                segment.nonfinite_forward = True

        self.session.deferred.put(total, receive)

    # -- sampled segments ---------------------------------------------------------------------------------------

    def _enter_(self, module: torch.nn.Module, args: Any) -> None:
        key = id(module)
        names = self.session.names
        if len(self.session.modules) > 1 and key not in self._strangers and not names.knows(module):
            names.relearn(self.session.modules[0])
            if not names.knows(module):
                self._strangers.add(key)
        seen = self._seen.get(key)
        if seen is None:
            seen = self._seen[key] = _Seen(
                name=names.module(module),
                module_class=type(module).__qualname__,
                order=len(self._seen),
                is_root=len(self.session.modules) == 1,
            )
        seen.calls += 1
        self._began.setdefault(key, []).append(time.perf_counter())

    def _exit_(self, module: torch.nn.Module, args: Any, output: Any, is_root: bool) -> None:
        key = id(module)
        seen = self._seen.get(key)
        began = self._began.get(key)
        if seen is None or not began:
            return
        seen.forward_s += time.perf_counter() - began.pop()
        leaf = not children(module)
        if not leaf and not is_root:
            return
        inputs = tensors_in(args)
        outputs = tensors_in(output)
        device = inputs[0].device.type if inputs else None
        seen.row = {
            "in_dtypes": [short_dtype(t) for t in inputs if t.is_floating_point()],
            "out_dtypes": [short_dtype(t) for t in outputs if t.is_floating_point()],
            "in_devices": sorted({t.device.type for t in inputs}),
            "param_dtypes": [short_dtype(p) for p in module._parameters.values() if p is not None],
            "autocast_dtype": autocast_dtype(device)[1],
            "grad_enabled": torch.is_grad_enabled(),
            "training": module.training,
            "thread_main": threading.get_ident() == self.session.thread,
        }
        if leaf or is_root:
            self._on_output(module, seen.name, outputs)

    def segment_end(self, segment: Segment) -> None:
        for seen in self._seen.values():
            if seen.row:
                self.session.emit(
                    "modules",
                    phase="forward",
                    name=seen.name,
                    class_name=seen.module_class,
                    is_root=seen.is_root,
                    order=seen.order,
                    calls=seen.calls,
                    forward_s=seen.forward_s,
                    **seen.row,
                )
        self._seen.clear()
