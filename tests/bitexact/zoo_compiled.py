"""Loops whose code is compiled by the default backend: a model, a method, a block and a loss function."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.bitexact.snapshot import Trained
from tests.bitexact.zoo import LOOPS, Loop, autocast, batch, fit, mlp, scaler_for

COMPILED: list[str] = []


def compiled_loop(function: Loop) -> Loop:
    """Register a loop that builds code: these are slow, and are run at fewer settings."""
    LOOPS[function.__name__] = function
    COMPILED.append(function.__name__)
    return function


def _net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.Dropout(0.2), nn.Linear(16, 4))


@compiled_loop
def compiled_model(precision: str) -> Trained:
    model = _net()
    compiled = cast(nn.Module, torch.compile(model))
    trained = fit(precision, compiled, torch.optim.AdamW(model.parameters(), lr=1e-2), steps=4)
    trained.models = [model]
    return trained


@compiled_loop
def compiled_in_place(precision: str) -> Trained:
    model = _net()
    model.compile()
    return fit(precision, model, torch.optim.SGD(model.parameters(), lr=0.1), steps=4)


@compiled_loop
def compiled_block(precision: str) -> Trained:
    model = mlp()
    model[2] = cast(nn.Module, torch.compile(nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.2))))
    return fit(precision, model, torch.optim.SGD(model.parameters(), lr=0.1), steps=4)


@compiled_loop
def compiled_method_and_loss(precision: str) -> Trained:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = mlp(out=16), nn.Linear(16, 4)

        @torch.compile
        def features(self, x: Tensor) -> Tensor:
            return self.body(x).tanh()

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.features(x))

    @torch.compile
    def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(logits.float(), targets, label_smoothing=0.1)

    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = scaler_for(precision)
    losses = []
    for _ in range(4):
        inputs, targets = batch()
        optimizer.zero_grad()
        with autocast(precision):
            loss = loss_of(model(inputs), targets)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.detach())
    return Trained([model], [optimizer], [scaler], losses)
