"""The sentinel on block outputs: which part of the model first returned a non-finite value, for events that do not
repeat. One float32 sum per block, of at most BLOCKS blocks, and only while that is cheap.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from ampscope.hooks.clock import Segment
from ampscope.hooks.collector import Collector
from ampscope.hooks.members import children
from ampscope.hooks.modules import short_dtype, tensors_in
from ampscope.hooks.sentinel import float32_sum

BLOCKS = 16

SHARE = 0.25
"""Share of the budget that the sentinel may take; above it every other block is dropped."""

MAX_EVENTS = 64
"""Rows of one run: what is bad at every step is the watch's business."""


class Blocks(Collector):
    """`wanted` holds the identities of the modules whose outputs are summed; `on_output` is called for these."""

    name = "blocks"

    def __init__(self, session: Any) -> None:
        super().__init__(session)
        self.wanted: dict[int, str] = {}
        self._spent = 0.0
        self._order = 0
        self._events = 0
        self.on_output = self.guarded(self._on_output)

    def new_root(self, root: torch.nn.Module) -> None:
        chosen = blocks_of(root)
        for module in chosen[: BLOCKS - len(self.wanted)]:
            self.wanted[id(module)] = self.session.names.module(module)

    def _on_output(self, module: torch.nn.Module, output: Any) -> None:
        if not torch.is_grad_enabled() or torch._C._current_graph_task_id() != -1:
            return
        began = time.perf_counter()
        name = self.wanted[id(module)]
        segment = self.session.segment
        order, self._order = self._order, self._order + 1
        for tensor in tensors_in(output)[:1]:
            if not tensor.is_floating_point():
                continue
            total = float32_sum(tensor)
            if total is None:
                continue

            def receive(value: float, dtype: str = short_dtype(tensor), numel: int = tensor.numel()) -> None:
                if value - value != 0.0:
                    self._emit(segment, name, dtype, numel, order, value)

            self.session.deferred.put(total, receive)
        self._spent += time.perf_counter() - began

    def _emit(self, segment: Segment, name: str, dtype: str, numel: int, order: int, value: float) -> None:
        self._events += 1
        if self._events > MAX_EVENTS:
            return
        # The sum tells NaN from inf and no more: the element counts stay unknown.
        segment.rows.append(
            (
                "nonfinite",
                {
                    "micro": segment.micro,
                    "phase": "forward",
                    "name": f"{name}:out",
                    "module": name,
                    "role": "activation",
                    "order": order,
                    "dtype": dtype,
                    "numel": numel,
                    "scale": segment.scale,
                },
            )
        )

    def segment_start(self, segment: Segment) -> None:
        self._order = 0

    def segment_end(self, segment: Segment) -> None:
        spent, self._spent = self._spent, 0.0
        if not self.wanted or segment.level != "pulse":
            return
        duration = time.perf_counter() - segment.began
        if spent > SHARE * self.session.budget.share * duration:
            # Keep every other one: a coarser place is better than none, until the last is too dear as well.
            keys = list(self.wanted)
            for key in keys[::2]:
                del self.wanted[key]


def blocks_of(root: torch.nn.Module) -> list[torch.nn.Module]:
    """At most BLOCKS modules below `root` at one depth, in order; containers count as their members."""
    level = [root]
    while True:
        below: list[torch.nn.Module] = []
        for module in level:
            members = [member for _, member in children(module)]
            below.extend(members if members else [module])
        below = _opened(below)
        if len(below) > BLOCKS:
            if level == [root]:
                return below[:: -(-len(below) // BLOCKS)]
            return level
        if len(below) == len(level):
            return [] if level == [root] else level
        level = below


def _opened(modules: list[torch.nn.Module]) -> list[torch.nn.Module]:
    """Lists and dicts of modules have no forward of their own: take what they hold."""
    opened: list[torch.nn.Module] = []
    for module in modules:
        if isinstance(module, (torch.nn.ModuleList, torch.nn.ModuleDict)):
            opened.extend(_opened([member for _, member in children(module)]))
        else:
            opened.append(module)
    return opened
