"""Who broke the step: non-finite counts per parameter when a step is skipped, in backward order. Costs nothing in
good steps, because it runs only after a skip, while the gradients are still there.
"""

from __future__ import annotations

from typing import Any

import torch

from ampscope.hooks.clock import Segment
from ampscope.hooks.collector import Collector
from ampscope.hooks.modules import short_dtype
from ampscope.hooks.quiet import quiet, readable
from ampscope.numerics.histogram import exponent_histogram
from ampscope.numerics.ranges import range_summary

MAX_LOOKS = 8
"""Non-finite forwards after which inputs, weights and buffers are searched."""

MAX_SKIPS = 200
"""Skipped steps that are looked into per run; a scaler that only skips would cost a pass each step."""


class Blame(Collector):
    """Emits `nonfinite` rows. `stale` needs to know what was bad before backward: `backward_begins` looks."""

    name = "blame"

    def __init__(self, session: Any) -> None:
        super().__init__(session)
        self._skips = 0
        self._unfit: dict[int, bool] = {}
        """Gradients that were non-finite at a skip: whether they still were when a backward was about to feed them."""
        self._input_looks = 0
        self._state_looks = 0
        self.on_inputs = self.guarded(self._on_inputs)
        self.on_skip = self.guarded(self._on_skip)

    def backward_begins(self) -> None:
        """After a skip: gradients that are still non-finite when the next backward adds to them are stale."""
        fed = self.session.segment.fed
        # Which parameters this backward will feed is not known yet: the last look before they are fed counts.
        # Other threads feed theirs meanwhile: nothing here may iterate over a mapping that grows.
        waiting = {key for key in tuple(self._unfit) if key not in fed}
        if not waiting:
            return
        for param in self.session.parameters.all():
            if id(param) in waiting:
                total, finite = (0, 0) if param.grad is None else count(param.grad)
                self._unfit[id(param)] = finite < total

    def _on_skip(self, optimizer: torch.optim.Optimizer, name: str, scale: float) -> None:
        self._skips += 1
        if self._skips > MAX_SKIPS:
            self._unfit.clear()
            return
        order = self.session.segment.fed
        params = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        params.sort(key=lambda p: order.get(id(p), len(order)))
        for param in params:
            stale = self._unfit.pop(id(param), False)
            if self._emit(param, order.get(id(param)), scale, stale):
                self._unfit[id(param)] = False

    def _emit(self, param: torch.Tensor, order: int | None, scale: float, stale: bool) -> bool:
        assert param.grad is not None
        found = self.session.names.param(param)
        return self.emit_bad(
            param.grad, found[0] if found else "?", "grad", module=found[1] if found else None,
            phase="backward", order=order, scale=scale, stale=stale,
        )  # fmt: skip

    def emit_bad(self, tensor: torch.Tensor, name: str, role: str, **columns: Any) -> bool:
        """Emit a row for `tensor` if it holds NaN or inf; True if it does."""
        with quiet():
            source = readable(tensor)
            if source is None or not (source.is_floating_point() or source.is_complex()):
                return False
            h = exponent_histogram(source.detach())
        if h.nan + h.posinf + h.neginf == 0:
            return False
        self.session.emit(
            "nonfinite", name=name, role=role, dtype=short_dtype(source), numel=h.numel,
            nan=h.nan, posinf=h.posinf, neginf=h.neginf, **columns,
        )  # fmt: skip
        return True

    # -- a forward that came out non-finite ------------------------------------------------------------------------

    def _on_inputs(self, module: torch.nn.Module, inputs: list[torch.Tensor]) -> None:
        """A root forward returned a non-finite value: was its input finite?"""
        if self._input_looks < MAX_LOOKS:
            self._input_looks += 1
            name = self.session.names.module(module)
            for index, tensor in enumerate(inputs):
                self.emit_bad(tensor, f"{name}:in{index or ''}", "input", module=name, phase="forward")

    def segment_end(self, segment: Segment) -> None:
        if not segment.nonfinite_forward or self._state_looks >= MAX_LOOKS:
            return
        self._state_looks += 1
        for param in self.session.parameters.all():
            found = self.session.names.param(param)
            self.emit_bad(
                param, found[0] if found else "?", "weight", module=found[1] if found else None, phase="other"
            )
        for name, buffer in self.session.names.buffers():
            self.emit_bad(buffer, name, "buffer", module=name.rpartition(".")[0] or None, phase="other")


def count(tensor: torch.Tensor) -> tuple[int, int]:
    """(elements, finite elements)."""
    with quiet():
        source = readable(tensor)
        if source is None:
            return 0, 0
        summary = range_summary(source.detach())
    return summary.numel, summary.numel - summary.nonfinite
