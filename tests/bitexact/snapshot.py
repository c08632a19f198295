"""What a training loop leaves behind, as digests: equal digests mean equal bits."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


@dataclass
class Trained:
    """What one loop hands over. `losses` in order; `extra` is anything else that must not change, such as
    what the user's own hooks and modes saw."""

    models: Iterable[nn.Module] = ()
    optimizers: Iterable[torch.optim.Optimizer] = ()
    scalers: Iterable[torch.amp.GradScaler] = ()
    losses: list[Tensor] = field(default_factory=list)
    extra: Any = None


def digest(value: Any) -> str:
    """A short text, equal for equal bits: dtype, shape and bytes of a tensor, the exact value of a float."""
    if isinstance(value, Tensor):
        value = value.detach()
        if value.is_sparse:
            value = value.coalesce()
            return f"sparse({digest(value.indices())}, {digest(value.values())})"
        data = value.cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes() if value.numel() else b""
        return f"{value.dtype} {tuple(value.shape)} {hashlib.sha256(data).hexdigest()[:16]}"
    if isinstance(value, float):
        return value.hex()
    return repr(value)


def flatten(value: Any, name: str) -> Iterator[tuple[str, str]]:
    """(path, digest) of every leaf of nested mappings and sequences."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from flatten(inner, f"{name}.{key}")
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from flatten(inner, f"{name}[{index}]")
    else:
        yield name, digest(value)


def snapshot(trained: Trained) -> dict[str, str]:
    """Digests of weights, buffers, gradients, optimizer and scaler state, losses and every random stream."""
    parts: dict[str, Any] = {"losses": trained.losses, "extra": trained.extra}
    for index, model in enumerate(trained.models):
        parts[f"model{index}"] = dict(model.state_dict())
        parts[f"grad{index}"] = {name: p.grad for name, p in model.named_parameters()}
        parts[f"training{index}"] = [module.training for module in model.modules()]
    for index, optimizer in enumerate(trained.optimizers):
        parts[f"optimizer{index}"] = optimizer.state_dict()
    for index, scaler in enumerate(trained.scalers):
        parts[f"scaler{index}"] = scaler.state_dict()
    parts["torch_rng"] = torch.get_rng_state()
    parts["numpy_rng"] = hashlib.sha256(repr(np.random.get_state()).encode()).hexdigest()
    parts["python_rng"] = hashlib.sha256(repr(random.getstate()).encode()).hexdigest()
    return dict(flatten(parts, "run"))
