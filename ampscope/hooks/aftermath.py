"""Looks at the graph of a loss that is not finite, before backward frees it, when no census and no watch saw how it
came about: the first failing step of a run that nothing announced, which may be its last.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch

from ampscope.hooks.collector import Collector
from ampscope.hooks.patches import Call
from ampscope.hooks.postmortem import PostMortem
from ampscope.hooks.quiet import quiet

LOOKS = 3
"""Graphs examined per run: after the first one the watch is armed and sees more."""

FRAMES = 16
"""Frames of a traceback whose variables are looked through for the loss."""


class Aftermath(Collector):
    """`on_bad_loss(roots)` is called before a backward whose loss turned out to be non-finite. A script that stops
    at such a loss instead is looked at when the recording ends.

    To read what autograd saved runs the user's unpack hooks where there are any, and a checkpointed region would be
    computed again: once such hooks were used, no graph is examined any more.
    """

    name = "aftermath"

    def __init__(self, session: Any) -> None:
        super().__init__(session)
        self._looks = 0
        self._hooks = False
        self._segment = -1
        self.on_bad_loss = self.guarded(self._on_bad_loss)
        self._last_look = self.guarded(self._last_look_)

    def install(self) -> None:
        if self.session.settings.level not in ("census", "watch"):
            self._looks = LOOKS  # single ops are none of what was asked for
            return
        self.wrap(torch.autograd.graph.saved_tensors_hooks, "__enter__", self._hooks_used)

    def remove(self) -> None:
        segment = self.session.segment
        if segment.work_began and not segment.micro:
            self._last_look()
        super().remove()

    def _hooks_used(self, call: Call) -> None:
        self._hooks = True

    def _on_bad_loss(self, roots: list[torch.Tensor]) -> None:
        segment = self.session.segment
        if self._hooks or self._looks >= LOOKS or segment.level in ("census", "watch"):
            return
        if self._segment == segment.index:
            return
        self._looks += 1
        self._segment = segment.index
        found = PostMortem(self.session)
        for row in found.examine(roots):
            self.session.emit("ops", **row)
        for row in found.inputs:
            self.session.emit("nonfinite", **row)

    def _last_look_(self) -> None:
        """The run ends after a forward without a backward: perhaps because its loss was not finite."""
        with quiet():
            bad = [t for t in _scalars(self.session.failed) if not torch.isfinite(t.detach()).all()]
        if bad:
            self.session.segment.nonfinite_forward = True
            self._on_bad_loss(bad[-1:])


def _scalars(error: BaseException | None) -> Iterator[torch.Tensor]:
    """Losses among the variables of the script and of the frames that an exception left: scalars with a graph."""
    spaces = [getattr(sys.modules.get("__main__"), "__dict__", {})]
    trace = error.__traceback__ if error is not None else None
    frames = 0
    while trace is not None and frames < FRAMES:
        spaces.append(trace.tb_frame.f_locals)
        trace, frames = trace.tb_next, frames + 1
    for space in spaces:
        for value in list(space.values()):
            if (
                type(value) is torch.Tensor
                and value.numel() == 1
                and value.grad_fn is not None
                and value.is_cpu
            ):
                yield value
