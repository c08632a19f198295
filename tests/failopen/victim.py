"""A training loop that takes the recorder through all that it does in six segments: census, range, profile, a skipped
step, watch.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.bitexact.snapshot import Trained

STEPS = 6
OVERFLOWS = 3
"""Step whose loss is not finite: the scaler skips it, blame and watch look into it."""


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True))
        self.body = nn.Linear(8, 8)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(8, 3, dtype=torch.bfloat16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.drop(checkpoint(self.body, self.stem(x), use_reentrant=False).relu())
        return self.head(h.to(torch.bfloat16)).float()  # type: ignore[no-any-return]


def train() -> Trained:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=2)
    losses = []
    for step in range(STEPS):
        x, y = torch.randn(4, 6), torch.randint(0, 3, (4,))
        if step == OVERFLOWS:
            x = x * float("inf")
        with torch.autocast("cpu", torch.float16):
            loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        if step == 1:
            with torch.no_grad():
                for p in model.parameters():
                    if p.grad is not None:
                        p.grad *= 2.0
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        losses.append(loss.detach())
    return Trained([model], [optimizer], [scaler], losses)
