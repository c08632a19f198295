"""What one optimizer step did to each parameter: a fixed, seeded subset of its elements before and after the step.

The subset is drawn without the user's random generators, so that sampling leaves their streams alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from ampscope.hooks.clock import Row, Segment
from ampscope.hooks.collector import Collector
from ampscope.hooks.modules import short_dtype
from ampscope.hooks.quiet import quiet, readable
from ampscope.hooks.rounding import Rounding
from ampscope.numerics.updates import Update, compare_updates, subset_indices

SUBSET = 65_536
"""Elements compared per parameter, unless `--exact`."""

SEED = 0


@dataclass
class _Snapshot:
    param: torch.Tensor
    indices: torch.Tensor | None
    before: torch.Tensor
    gradient: torch.Tensor | None
    lr: float | None
    adam: bool


@dataclass
class _Change:
    """One parameter of a step: what its row is to say comes from the copies before and after. `survives` tells of
    half weights whether small updates do."""

    row: Row
    update: Update
    survives: Callable[[torch.Tensor, torch.Tensor], bool | None] | None


class UpdateReads:
    """The parameters of one step, copied to the host; compared, all together, when they have arrived."""

    def __init__(self, changes: list[_Change]) -> None:
        self._changes = changes
        self._event: Any = None
        on_device = [c for c in changes if c.update.before.device.type == "cuda"]
        for change in on_device:
            change.update = _to_pinned(change.update)
        if on_device:
            self._event = torch.cuda.Event()
            self._event.record()

    def ready(self) -> bool:
        return self._event is None or bool(self._event.query())

    def deliver(self) -> None:
        if self._event is not None:
            self._event.synchronize()
        with quiet():
            found = compare_updates([c.update for c in self._changes])
            for change, stats in zip(self._changes, found, strict=True):
                change.row.update(vars(stats), ratio_hist=list(stats.ratio_hist))
                if change.survives is not None:
                    change.row["survives"] = change.survives(change.update.before, change.update.after)


class Updates(Collector):
    """`before_step` and `after_step` are called by the optimizers' collector around every outermost step."""

    name = "updates"

    def __init__(self, session: Any) -> None:
        super().__init__(session)
        self._sampled = False
        self._taken: list[_Snapshot] = []
        self._rounding = Rounding()
        self._steps: dict[str, int] = {}
        self._indices: dict[tuple[int, torch.device], torch.Tensor | None] = {}
        self.before_step = self.guarded(self._before_step)
        self.after_step = self.guarded(self._after_step)

    def segment_start(self, segment: Segment) -> None:
        self._sampled = segment.level in ("range", "census")
        self._taken.clear()

    def _before_step(self, optimizer: torch.optim.Optimizer, name: str) -> None:
        self._steps[name] = self._steps.get(name, 0) + 1
        if not self._sampled:
            return
        with quiet():
            for group in optimizer.param_groups:
                lr = group.get("lr")
                for param in group["params"]:
                    source = readable(param)
                    if source is None or param.grad is None or not source.is_floating_point():
                        continue
                    indices = self._subset(source)
                    gradient = readable(param.grad)
                    dense = gradient is not None and gradient.shape == source.shape
                    self._taken.append(
                        _Snapshot(
                            param,
                            indices,
                            _take(source, indices),
                            _take(gradient, indices) if dense and gradient is not None else None,
                            float(lr) if isinstance(lr, (int, float)) else None,
                            "exp_avg_sq" in optimizer.state.get(param, ()),
                        )
                    )

    def _after_step(self, optimizer: torch.optim.Optimizer, name: str) -> None:
        taken, self._taken = self._taken, []
        changes = []
        for snapshot in taken:
            found = self.session.names.param(snapshot.param)
            with quiet():
                source = readable(snapshot.param)
                if source is None:
                    continue
                after = _take(source, snapshot.indices)
            self.elements += after.numel()
            row = self.session.emit(
                "updates",
                phase="optimizer",
                name=found[0] if found else "?",
                module=found[1] if found else None,
                dtype=short_dtype(snapshot.param),
                of_numel=snapshot.param.numel(),
                lr=snapshot.lr,
            )
            survives = None
            if after.dtype in (torch.float16, torch.bfloat16):
                adam_lr = snapshot.lr if snapshot.adam else None
                survives = partial(self._survives, id(snapshot.param), self._steps[name], adam_lr)
            changes.append(
                _Change(row, Update(snapshot.before, after, snapshot.gradient, snapshot.lr), survives)
            )
        if changes:
            self.session.segment.reads.append(UpdateReads(changes))

    def _survives(
        self, key: int, step: int, adam_lr: float | None, before: torch.Tensor, after: torch.Tensor
    ) -> bool | None:
        return self._rounding.survives(key, before, after, step, adam_lr)

    def _subset(self, tensor: torch.Tensor) -> torch.Tensor | None:
        numel = tensor.numel()
        if self.session.settings.exact or numel <= SUBSET:
            return None
        key = (numel, tensor.device)
        if key not in self._indices:
            indices = subset_indices(numel, SUBSET, SEED)
            self._indices[key] = indices.to(tensor.device) if indices is not None else None
        return self._indices[key]


def _take(tensor: torch.Tensor, indices: torch.Tensor | None) -> torch.Tensor:
    """A flat copy of the chosen elements, or of all."""
    flat = tensor.detach().reshape(-1) if tensor.is_contiguous() else tensor.detach().contiguous().view(-1)
    return flat.clone() if indices is None else flat.index_select(0, indices)


def _to_pinned(update: Update) -> Update:
    def pinned(tensor: torch.Tensor) -> torch.Tensor:
        host = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=True)
        return host.copy_(tensor, non_blocking=True)

    gradient = None if update.grad is None else pinned(update.grad)
    return Update(pinned(update.before), pinned(update.after), gradient, update.lr)
