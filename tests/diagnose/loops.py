"""Small fp16 loops into which a test puts one fault of the forward or of the backward."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from tests.diagnose.judging import half, labelled


def loop(
    model: nn.Module,
    loss_of: Callable[[Tensor, Tensor, int], Tensor],
    *,
    steps: int = 8,
    scale: float | None = 2.0**8,
    lr: float = 1e-3,
    autocast: bool = True,
) -> None:
    """Adam on `model`; `loss_of(x, y, step)` runs under fp16 autocast. `scale` None: no GradScaler."""
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale or 1.0, enabled=scale is not None)
    for step in range(steps):
        x, y = labelled()
        optimizer.zero_grad()
        if autocast:
            with half():
                loss = loss_of(x, y, step)
        else:
            loss = loss_of(x, y, step)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
