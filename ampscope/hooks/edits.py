"""In-place edits and replacements of `.grad` between backward and the optimizer, noticed by value on census
segments: a hand-made division by the loss scale, noise, a clamp. Reads norms only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch

from ampscope.hooks.clock import Segment
from ampscope.hooks.collector import Collector
from ampscope.hooks.parameters import Parameters
from ampscope.hooks.quiet import quiet, readable

MAX_NAMES = 64

TOLERANCE = 2.0**-12
"""Relative change of a norm that counts as an edit: far above the rounding of reading the same values twice."""


class GradEdits(Collector):
    """`after_backward` notes the norms; `look` compares them with what the scaler, a clip or a step is given."""

    name = "grad_edits"

    def __init__(self, session: Any, parameters: Parameters, scales: Any) -> None:
        super().__init__(session)
        self.parameters = parameters
        self._scales = scales
        self._on = False
        self._norms: dict[int, float] = {}
        self.after_backward = self.guarded(self._after_backward)
        self.look = self.guarded(self._look)
        self.look_at = self.guarded(self._look_at)
        self.before_step = self.guarded(self._before_step)

    def segment_start(self, segment: Segment) -> None:
        self._on = segment.level == "census"
        self._norms.clear()

    def _after_backward(self) -> None:
        if not self._on:
            return
        fed = self.session.segment.fed
        for param in self.parameters.all():
            if id(param) in fed and param.grad is not None:
                norm = _norm(param.grad)
                if norm is not None:
                    self._norms[id(param)] = norm

    def _before_step(self, optimizer: torch.optim.Optimizer, name: str) -> None:
        # Inside scaler.step the gradients were looked at before unscale_ changed them.
        if self._on and (not self._scales() or self.parameters.grad_state.get(name) != "unscaled"):
            self._look(optimizer, name)

    def _look(self, optimizer: torch.optim.Optimizer, name: str) -> None:
        self._look_at([p for group in optimizer.param_groups for p in group["params"]])

    def _look_at(self, params: Iterable[torch.Tensor]) -> None:
        """Emit one `grad_edit` row for all parameters whose gradient norm changed since backward."""
        if not self._on or not self._norms:
            return
        changed: list[str] = []
        factors: list[float] = []
        scaled = None
        total = 0.0
        for param in params:
            before = self._norms.pop(id(param), None)
            now = _norm(param.grad) if before is not None and param.grad is not None else None
            if before is None or now is None or not (math.isfinite(before) and before > 0.0):
                continue
            total += now * now
            if abs(now - before) > TOLERANCE * before:
                changed.append(self.session.param_name(param) or "?")
                factors.append(now / before)
                scaled = self.parameters.state_of([param])
        if not changed:
            return
        factors.sort()
        self.session.call_row(
            "grad_edit",
            scaled=scaled,
            value=factors[len(factors) // 2],
            limit=factors[-1] / factors[0] if factors[0] > 0.0 else None,
            norm=math.sqrt(total),
            params=changed[:MAX_NAMES],
            n_params=len(changed),
            detail="norm_now/norm_after_backward",
            phase="other",
        )


def _norm(gradient: torch.Tensor) -> float | None:
    """Euclidean norm in float64; None where it cannot be read."""
    with quiet():
        source = readable(gradient)
        if source is None or not source.is_floating_point():
            return None
        return float(torch.linalg.vector_norm(source.detach(), dtype=torch.float64))
