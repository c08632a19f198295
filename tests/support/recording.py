"""Record a function that trains, in this process, and open its trace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import ampscope
from ampscope.trace.reader import Trace, open_trace


def record(path: Path, train: Callable[[], object], **settings: Any) -> Trace:
    """The trace of `train()`, recorded strictly: an error of a collector fails the test."""
    keep(path, train, **settings)
    return open_trace(path / "run")


def keep(path: Path, train: Callable[[], object], **settings: Any) -> None:
    """Record the same into `path / "run"`, without opening it."""
    with ampscope.Recorder(path / "run", strict=settings.pop("strict", True), **settings):
        train()


def seeded(train: Callable[[], object]) -> Callable[[], object]:
    """`train`, from the same random state each time."""

    def again() -> object:
        torch.manual_seed(0)
        return train()

    return again


def rows(trace: Trace, query: str) -> list[dict[str, Any]]:
    """The result of a query as plain dicts; null is None."""
    frame = trace.sql(query).astype(object)
    records = frame.where(frame.notna(), None).to_dict("records")
    return [{str(key): value for key, value in row.items()} for row in records]


def mlp(seed: int = 0) -> torch.nn.Sequential:
    """Two linear layers, 8 inputs, 3 outputs."""
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))


def batch(n: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(n, 8), torch.randint(0, 3, (n,))


def amp_training(steps: int = 4, clip: bool = False, unscale: bool = True, **scaler: Any) -> None:
    """A healthy fp16 loop with GradScaler on `mlp()`."""
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    grad_scaler = torch.amp.GradScaler("cpu", **scaler)
    for _ in range(steps):
        x, y = batch()
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = torch.nn.functional.cross_entropy(model(x), y)
        grad_scaler.scale(loss).backward()
        if clip:
            if unscale:
                grad_scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        grad_scaler.step(optimizer)
        grad_scaler.update()
