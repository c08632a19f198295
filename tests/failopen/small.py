"""What the hostile cases have in common: a registry, a small model and a loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tests.bitexact.snapshot import Trained

CASES: dict[str, Callable[[], Trained]] = {}


def case(function: Callable[[], Trained]) -> Callable[[], Trained]:
    CASES[function.__name__] = function
    return function


class Net(nn.Module):
    """Two layers; cases override what they need."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 5)
        self.b = nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Any:
        return self.b(self.a(x).relu())


def fit(
    model: nn.Module,
    loss_of: Callable[[Any], Tensor] = lambda out: out.float().pow(2).mean(),
    steps: int = 3,
    each: Callable[[int, Any], None] = lambda step, optimizer: None,
    dtype: torch.dtype = torch.float32,
) -> Trained:
    """SGD on random inputs; `each` runs before every step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for step in range(steps):
        each(step, optimizer)
        optimizer.zero_grad()
        loss = loss_of(model(torch.randn(3, 4, dtype=dtype)))
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return Trained([model], [optimizer], losses=losses)
