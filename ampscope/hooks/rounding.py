"""Whether small updates of half-stored weights survive: stochastic rounding moves weights at once that nearest rounding
would hold still, a compensated sum does so after some steps. Measured on the weights, whoever steps them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ampscope.numerics.optimizer_state import rounding_evidence

MOST_BYTES = 64 * 2**20
"""Weights that are kept from the first compared step on."""

CERTAIN_MOVES = 20
"""Moves that nearest rounding cannot make, from which on they are no accident of a few elements."""


@dataclass
class _Held:
    weights: torch.Tensor | None
    step: int
    looks: int = 0


class Rounding:
    """Keeps the compared elements of each half parameter as they were after the first compared step."""

    def __init__(self) -> None:
        self._held: dict[int, _Held] = {}
        self._bytes = 0

    def survives(
        self, key: int, before: torch.Tensor, after: torch.Tensor, step: int, adam_lr: float | None
    ) -> bool | None:
        """True: updates that nearest rounding loses were seen to arrive; False: they were lost; None: cannot be told.

        `before` and `after` one step: float16 or bfloat16 on the host, the same elements of parameter `key` each time.
        Looks at the first, second, fourth, eighth, … call only, since a look costs more than the comparison of a step.
        `step`: how many steps its optimizer has taken; `adam_lr`: its learning rate if it is of the Adam family, whose
        updates are hardly larger.
        """
        held = self._held.get(key)
        if held is None:
            held = self._held[key] = _Held(self._kept(after), step)
        held.looks += 1
        if held.looks & (held.looks - 1):
            return None
        one = rounding_evidence(before, after)
        found = one.survives
        spans = [(before, 1)]
        first = held.weights
        if (
            first is not None
            and (first.shape, first.dtype) == (after.shape, after.dtype)
            and step > held.step
        ):
            spans.append((first, step - held.step))
        for earlier, steps in spans:
            if found:
                return True
            if one.typical_update is not None:
                over = rounding_evidence(earlier, after, steps, one.typical_update).survives
                found = found if over is None else over
            elif adam_lr:
                # An upper bound of the updates: moves beyond it prove survival, their absence proves nothing.
                moved = rounding_evidence(earlier, after, steps, adam_lr).coarse_moved
                found = True if moved >= CERTAIN_MOVES else found
        return found

    def _kept(self, weights: torch.Tensor) -> torch.Tensor | None:
        size = weights.numel() * weights.element_size()
        if self._bytes + size > MOST_BYTES:
            return None
        self._bytes += size
        return weights.clone()
