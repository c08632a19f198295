"""Training loops of many shapes, each a function of the precision that returns what it trained.

`@loop` registers one. They are plain PyTorch: nothing here may know that it is being recorded. Those with a
shape of their own are in zoo_loops.py, those that need torch.compile in zoo_compiled.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from tests.bitexact.snapshot import Trained

Loop = Callable[[str], Trained]
LOOPS: dict[str, Loop] = {}
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}


def loop(function: Loop) -> Loop:
    """Register a training loop under its function name."""
    LOOPS[function.__name__] = function
    return function


def autocast(precision: str) -> torch.autocast:
    return torch.autocast("cpu", dtype=DTYPES[precision], enabled=precision != "fp32")


def scaler_for(precision: str, init_scale: float = 2.0**10, **policy: Any) -> torch.amp.GradScaler:
    return torch.amp.GradScaler("cpu", enabled=precision == "fp16", init_scale=init_scale, **policy)


def mlp(width: int = 16, out: int = 4) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(8, width), nn.ReLU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, out)
    )


def batch(out: int = 4, size: int = 12) -> tuple[Tensor, Tensor]:
    return torch.randn(size, 8), torch.randint(out, (size,))


def fit(
    precision: str,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    data: Callable[[], tuple[Tensor, Tensor]] = batch,
    steps: int = 6,
    after_step: Callable[[int], None] = lambda step: None,
    **policy: Any,
) -> Trained:
    """The ordinary loop: autocast, scaled backward, unscale, clip, step, update."""
    scaler = scaler_for(precision, **policy)
    losses = []
    for step in range(steps):
        inputs, targets = data()
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        with autocast(precision):
            loss = F.cross_entropy(model(inputs), targets)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.detach())
        after_step(step)
    return Trained([model], [optimizer], [scaler], losses)


@loop
def sgd_mlp(precision: str) -> Trained:
    model = mlp()
    return fit(precision, model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), steps=10)


@loop
def overflowing_scale(precision: str) -> Trained:
    """Skips its first steps, grows, and skips again: the watch level arms."""
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    return fit(
        precision, model, optimizer, steps=16, init_scale=2.0**40, backoff_factor=2.0**-6, growth_interval=3
    )


@loop
def broken_forward(precision: str) -> Trained:
    """An activation overflows half from the third batch on and the run goes on through NaN."""
    model = mlp()
    calls = iter(range(99))

    def data() -> tuple[Tensor, Tensor]:
        inputs, targets = batch()
        return inputs * (1e6 if next(calls) > 2 else 1.0), targets

    return fit(precision, model, torch.optim.SGD(model.parameters(), lr=0.1), data, steps=8)


@loop
def conv_bn_dropout(precision: str) -> Trained:
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Dropout2d(0.3),
        nn.Conv2d(4, 4, 3, stride=2), nn.BatchNorm2d(4), nn.Flatten(), nn.Dropout(0.2), nn.Linear(36, 4),
    )  # fmt: skip
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    return fit(precision, model, optimizer, lambda: (torch.randn(6, 1, 8, 8), torch.randint(4, (6,))))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 12, num_layers=2, dropout=0.1, batch_first=True)
        self.head = nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        # The CPU has no half-precision LSTM kernel.
        with torch.autocast("cpu", enabled=False):
            states, _ = self.lstm(x.float())
        return self.head(states[:, -1])


@loop
def lstm(precision: str) -> Trained:
    model = Recurrent()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    return fit(precision, model, optimizer, lambda: (torch.randn(5, 7, 8), torch.randint(4, (5,))))


class Transformer(nn.Module):
    """Two pre-norm blocks with SDPA and dropout; `tied` shares head, embedding and block."""

    def __init__(self, tied: bool = False, recompute: bool | None = None) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 16)
        first = nn.ModuleDict(
            {
                "norm": nn.LayerNorm(16),
                "qkv": nn.Linear(16, 48),
                "out": nn.Linear(16, 16),
                "drop": nn.Dropout(0.1),
            }
        )
        second = first if tied else nn.ModuleDict({key: _again(module) for key, module in first.items()})
        self.blocks = nn.ModuleList([first, second])
        self.head = nn.Linear(16, 11, bias=False)
        if tied:
            self.head.weight = self.embed.weight
        self.recompute = recompute

    def block(self, x: Tensor, index: int) -> Tensor:
        parts = self.blocks[index]
        q, k, v = parts["qkv"](parts["norm"](x)).view(*x.shape[:2], 2, 24).transpose(1, 2).chunk(3, dim=-1)  # type: ignore[index]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        return x + parts["drop"](parts["out"](y))  # type: ignore[index]

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for index in range(2):
            if self.recompute is None:
                x = self.block(x, index)
            else:
                x = checkpoint(self.block, x, index, use_reentrant=self.recompute)
        return self.head(x).flatten(0, 1)


def _again(module: nn.Module) -> nn.Module:
    import copy

    return copy.deepcopy(module)


def tokens() -> tuple[Tensor, Tensor]:
    ids = torch.randint(11, (3, 9))
    return ids[:, :-1], ids[:, 1:].flatten()


def _transformer(precision: str, **options: Any) -> Trained:
    model = Transformer(**options)
    return fit(precision, model, torch.optim.AdamW(model.parameters(), lr=1e-2), tokens)


@loop
def transformer_sdpa(precision: str) -> Trained:
    return _transformer(precision)


@loop
def tied_and_shared_weights(precision: str) -> Trained:
    return _transformer(precision, tied=True)


@loop
def checkpoint_reentrant(precision: str) -> Trained:
    return _transformer(precision, recompute=True)


@loop
def checkpoint_nonreentrant(precision: str) -> Trained:
    return _transformer(precision, recompute=False)


@loop
def called_many_times(precision: str) -> Trained:
    """One cell, twelve calls per step: a recurrence by hand."""

    class Cell(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.GRUCell(8, 8)
            self.head = nn.Linear(8, 4)

        def forward(self, x: Tensor) -> Tensor:
            state = torch.zeros_like(x)
            for _ in range(12):
                state = self.cell(x, state)
            return self.head(state)

    model = Cell()
    return fit(precision, model, torch.optim.Adagrad(model.parameters(), lr=0.05))


@loop
def inplace_relu(precision: str) -> Trained:
    model = nn.Sequential(
        nn.Linear(8, 16), nn.ReLU(inplace=True), nn.Linear(16, 16), nn.Hardswish(inplace=True)
    )
    model.append(nn.Linear(16, 4))
    return fit(precision, model, torch.optim.SGD(model.parameters(), lr=0.1))


@loop
def fused_adamw(precision: str) -> Trained:
    model = mlp()
    return fit(
        precision, model, torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True), init_scale=2.0**30
    )


@loop
def foreach_adamw(precision: str) -> Trained:
    model = mlp()
    return fit(precision, model, torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=True, amsgrad=True))
