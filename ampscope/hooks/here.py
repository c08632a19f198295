"""What each thread is in the middle of: running modules, optimizer steps and backward passes. Reads no tensor."""

from __future__ import annotations

import threading

import torch

from ampscope.hooks.clock import Segment
from ampscope.hooks.process_state import autocast_dtype


class Here(threading.local):
    """State of the thread that asks."""

    def __init__(self) -> None:
        self.modules: list[torch.nn.Module] = []
        """Modules whose forward runs, outermost first."""
        self.uncast = False
        """A root's forward has begun without autocast and has called no module yet: a context that is entered now,
        by a wrapper round the forward or in its first lines, is the autocast of that forward."""
        self.device: str | None = None
        """Device type of the inputs of the last root forward."""
        self.rests = 0
        """How many rests had ended when a module last began."""
        self.in_optimizer = 0
        self.in_backward = 0

    def autocast_entered(self, segment: Segment) -> None:
        """An autocast context opened: it may be that of the root forward that has just begun."""
        if self.uncast:
            segment.autocast_device, segment.autocast_dtype = autocast_dtype(self.device)
            self.uncast = segment.autocast_dtype is None

    def phase(self, between: bool) -> str:
        """forward, recompute, backward, optimizer or other, for what runs now. `between`: the segment has begun
        to work and has had no backward, so that work outside of modules counts as forward."""
        if self.in_optimizer and not self.in_backward and not self.modules:
            return "optimizer"
        if torch._C._current_graph_task_id() != -1:
            return "recompute" if self.modules else "backward"
        if self.modules:
            return "forward"
        if self.in_backward:
            return "backward"
        return "forward" if between or autocast_dtype()[1] is not None else "other"
