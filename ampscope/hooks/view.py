"""What the op-level collectors ask of the session that runs them. Types only."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

import torch


class SessionView(Protocol):
    """Answers are about the calling thread, now. None of these may run a tensor op."""

    def phase(self) -> str:
        """forward, recompute, backward, optimizer or other."""

    def micro(self) -> int:
        """Micro-batch within the segment, from 0."""

    def module(self) -> str | None:
        """Name of the innermost module whose forward is running."""

    def param_name(self, tensor: torch.Tensor) -> str | None:
        """Name of `tensor` if it is a parameter of the model or of an optimizer."""

    def quiet(self) -> AbstractContextManager[None]:
        """See `ampscope.hooks.quiet`."""
