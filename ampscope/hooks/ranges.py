"""The range level: exponent histograms of gradients, weights, optimizer state, module outputs and their gradients
on sampled segments. One read per tensor; keeps no tensor and changes none.
"""

from __future__ import annotations

from collections import Counter
from fnmatch import fnmatchcase
from typing import Any

import torch

from ampscope.hooks.clock import Row, Segment
from ampscope.hooks.collector import Collector
from ampscope.hooks.modules import short_dtype
from ampscope.hooks.parameters import Parameters
from ampscope.hooks.quiet import quiet, readable
from ampscope.numerics.histogram import ExponentHistogram
from ampscope.numerics.rows import Pending, StatsRows

CAPACITY = 1024
"""Device rows between two drains."""

CALLS_PER_MODULE = 2
"""Outputs read per module and segment: a cell that runs at every time step would be read sixty times."""

OUTPUTS_PER_CALL = 4

STATE_ROLES = {
    "exp_avg": "exp_avg",
    "exp_avg_sq": "exp_avg_sq",
    "momentum_buffer": "momentum",
    "square_avg": "exp_avg_sq",
}


class HistogramReads:
    """Histograms on their way from the device, and the rows that they belong to."""

    def __init__(self, pending: Pending) -> None:
        self._pending = pending

    def ready(self) -> bool:
        return self._pending.ready()

    def deliver(self) -> None:
        for row, histogram in self._pending.result():
            assert isinstance(row, dict)
            fill(row, histogram)


def fill(row: Row, h: ExponentHistogram) -> None:
    """Put the statistics into the columns that `trace.schema.STATS` names."""
    lo, counts = h.trimmed()
    row.update(
        numel=h.numel, zeros=h.zeros, nan=h.nan, posinf=h.posinf, neginf=h.neginf, ge_65520=h.ge_65520,
        amax=h.amax, amin_nonzero=h.amin_nonzero, sum=h.sum, sumsq=h.sumsq, sumabs=h.sumabs,
        hist_lo=lo, hist=counts,
    )  # fmt: skip


class Ranges(Collector):
    """Other collectors call it at the moments that matter: it reads only when the segment is sampled."""

    name = "ranges"

    def __init__(self, session: Any, parameters: Parameters, scales: Any) -> None:
        super().__init__(session)
        self.parameters = parameters
        self._scales = scales
        self._rows: dict[torch.device, StatsRows] = {}
        self._reading = False
        self._order: Counter[str] = Counter()
        self._calls: Counter[tuple[str, int]] = Counter()
        self._hooked: Counter[str] = Counter()
        self._glob = session.settings.tensors
        self.on_output = self.guarded(self._on_output)
        self.on_scaled_gradients = self.guarded(self._on_scaled_gradients)
        self.on_clip = self.guarded(self._on_clip)
        self.before_step = self.guarded(self._before_step)
        self.after_step = self.guarded(self._after_step)

    def segment_start(self, segment: Segment) -> None:
        self._reading = segment.level in ("range", "census")
        self._order.clear()
        self._calls.clear()
        self._hooked.clear()

    def segment_end(self, segment: Segment) -> None:
        with quiet():
            segment.reads += [HistogramReads(rows.drain()) for rows in self._rows.values() if len(rows)]

    # -- reading ----------------------------------------------------------------------------------------------------

    def _wanted(self, name: str) -> bool:
        return self._glob is None or fnmatchcase(name, self._glob)

    def read(
        self, tensor: torch.Tensor, name: str, role: str, order: int | None = None, **columns: Any
    ) -> None:
        """Queue the statistics of one tensor and emit its row."""
        if not self._wanted(name):
            return
        with quiet():
            source = readable(tensor)
            if source is None or not source.is_floating_point():
                return
            source = source.detach()
            if order is None:
                order = self._order[role]
                self._order[role] += 1
            row = self.session.emit(
                "tensors",
                name=name,
                role=role,
                basis="observed",
                order=order,
                dtype=short_dtype(source),
                of_numel=tensor.numel(),
                **columns,
            )
            self.elements += source.numel()
            rows = self._rows.get(source.device)
            if rows is None:
                rows = self._rows[source.device] = StatsRows(source.device, CAPACITY)
            if not rows.read(source, row):
                self.session.segment.reads.append(HistogramReads(rows.drain()))
                rows.read(source, row)

    # -- module outputs and their gradients -----------------------------------------------------------------------

    def _on_output(self, module: torch.nn.Module, name: str, outputs: list[torch.Tensor]) -> None:
        if not self._reading or not torch.is_grad_enabled():
            return
        recompute = torch._C._current_graph_task_id() != -1
        micro = self.session.segment.micro
        if not recompute:
            self._calls[name, micro] += 1
            if self._calls[name, micro] > CALLS_PER_MODULE:
                return
        for index, tensor in enumerate(outputs[:OUTPUTS_PER_CALL]):
            if not tensor.is_floating_point():
                continue
            label = f"{name}:out{index or ''}"
            if not recompute:
                self.read(tensor, label, "activation", module=name, scaled=False, scale=1.0)
            self._hook_gradient(tensor, label, name, recompute)

    def _hook_gradient(self, tensor: torch.Tensor, label: str, module: str, recompute: bool) -> None:
        """Read the output's gradient when backward reaches it. A leaf would keep the hook for ever."""
        if not tensor.requires_grad or tensor.is_leaf or not self._wanted(label):
            return
        if recompute and self._hooked[label]:
            return
        self._hooked[label] += 1
        segment = self.session.segment

        def on_gradient(gradient: torch.Tensor) -> None:
            if torch.compiler.is_compiling() or self.dead or self.session.segment is not segment:
                return
            scaled, scale = self.session.backward_scale(self._scales())
            self.read(gradient, label, "activation_grad", module=module, scaled=scaled, scale=scale)

        tensor.register_hook(self.guarded(on_gradient))

    # -- parameter gradients -----------------------------------------------------------------------------------------

    def _on_scaled_gradients(self, optimizer: torch.optim.Optimizer, name: str) -> None:
        if self._reading:
            with quiet():
                self._read_gradients(optimizer, name, "pre_unscale")

    def _on_clip(self, params: list[torch.Tensor], scaled: str | None) -> None:
        """Gradients that carry no scale, before they are clipped; scaled ones are read before `unscale_`."""
        if not self._reading or self._scales():
            return
        with quiet():
            for param in params:
                self._read_gradient(param, scaled, "pre_clip")

    def _before_step(self, optimizer: torch.optim.Optimizer, name: str) -> None:
        if not self._reading:
            return
        with quiet():
            self._read_gradients(optimizer, name, "post_clip")
            for param in _params(optimizer):
                found = self.session.names.param(param)
                self.read(param, found[0] if found else "?", "weight", module=found[1] if found else None)

    def _after_step(self, optimizer: torch.optim.Optimizer, name: str) -> None:
        if not self._reading:
            return
        with quiet():
            for param in _params(optimizer):
                found = self.session.names.param(param)
                for key, value in optimizer.state.get(param, {}).items():
                    role = STATE_ROLES.get(key)
                    if role is not None and isinstance(value, torch.Tensor) and value.dim() > 0:
                        self.read(value, found[0] if found else "?", role, module=found[1] if found else None)

    def _read_gradients(self, optimizer: torch.optim.Optimizer, name: str, stage: str) -> None:
        scaled = self.parameters.grad_state.get(name)
        for param in _params(optimizer):
            if param.grad is not None:
                self._read_gradient(param, scaled, stage)

    def _read_gradient(self, param: torch.Tensor, scaled: str | None, stage: str) -> None:
        gradient = param.grad
        if gradient is None:
            return
        found = self.session.names.param(param)
        scales = self._scales()
        self.read(
            gradient,
            found[0] if found else "?",
            "grad",
            order=self.session.segment.fed.get(id(param)),
            module=found[1] if found else None,
            stage=stage,
            scaled={"scaled": True, "unscaled": False}.get(scaled or ""),
            scale=scales[0] if scaled == "scaled" and scales else 1.0 if scaled == "unscaled" else None,
        )


def _params(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]
