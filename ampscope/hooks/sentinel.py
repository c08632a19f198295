"""The cheapest test of a tensor for non-finite values: its float32 sum, which is NaN or inf when an element is.

A finite tensor whose sum exceeds the float32 range, or whose infinities cancel to NaN, also shows: both are worth
a look.
"""

from __future__ import annotations

import torch

from ampscope.hooks.deferred import unseen
from ampscope.hooks.quiet import quiet, readable


def float32_sum(tensor: torch.Tensor) -> torch.Tensor | None:
    """The sum, 0-d float32 on the tensor's device, without synchronisation; None when there is nothing to read."""
    if unseen(tensor) and tensor.layout is torch.strided and not tensor.is_nested:
        # A detached sum with a dtype of its own is the same under autocast: no quiet state needed.
        return torch.sum(tensor.detach(), dtype=torch.float32)
    with quiet():
        source = readable(tensor)
        return None if source is None else torch.sum(source.detach(), dtype=torch.float32)
