"""Whether a backward root carries the loss scale: a walk over the autograd graph for the marks that
`GradScaler.scale` left, and for multiplications by the scale itself. Reads the graph, never changes it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from ampscope.hooks.quiet import readable

SCALED_MARK = "ampscope.scaled"
PENALTY_MARK = "ampscope.grad_of_scaled"
ONES = 4096
"""Elements of a given gradient that are read, to tell ones from anything else."""

MAX_NODES = 5000
"""Beyond this the answer is unknown. A sum of a few hundred losses stays far below it."""


@dataclass(frozen=True)
class RootState:
    """`scaled` is scaled, unscaled, mixed or unknown. `penalty`: gradients of a scaled output reach the root
    without a multiplication or division by the scale on the way."""

    scaled: str
    penalty: bool = False
    loss: Any = None
    """What `mark_scaled` was given for the root itself, if the root is a direct result of `scale`."""


def mark_scaled(tensor: torch.Tensor, loss: Any) -> None:
    """Mark a result of `GradScaler.scale`. The mark lives in the graph and is freed with it."""
    node: Any = tensor.grad_fn
    if node is not None:
        node.metadata[SCALED_MARK] = loss


def mark_penalty(tensor: torch.Tensor) -> None:
    """Mark a result of `autograd.grad(..., create_graph=True)` taken of a scaled output."""
    node: Any = tensor.grad_fn
    if node is not None:
        node.metadata[PENALTY_MARK] = True


def marked_state(root: torch.Tensor) -> RootState:
    """What the root itself tells, at no cost: scaled if `scale` returned it, and otherwise unscaled, which is true
    where no scaler is enabled."""
    node: Any = root.grad_fn
    mark = None if node is None else node.metadata.get(SCALED_MARK)
    return RootState("unscaled" if mark is None else "scaled", loss=mark)


def root_state(root: torch.Tensor, scales: tuple[float, ...], penalties: bool = False) -> RootState:
    """Walk the graph of one backward root. `scales` are the loss scales in force (empty: no scaler is enabled).
    `penalties`: gradients were marked by `mark_penalty`, so that the walk goes on below the mark of the scale."""
    first: Any = root.grad_fn
    if first is None:
        return RootState("unscaled")
    mark = first.metadata.get(SCALED_MARK)
    if mark is not None:
        return RootState("scaled", penalties and _walk(first, scales, True).penalty, loss=mark)
    if not scales:
        return RootState("unscaled")
    return _walk(first, scales, penalties)


def weighted(state: RootState, gradient: Any, scales: tuple[float, ...]) -> RootState:
    """The state of a root whose backward begins with `gradient` instead of one. The gradient of features that an
    earlier backward left may carry the scale or not: unknown. A number that is the scale scales by hand."""
    if state.scaled == "scaled" or not isinstance(gradient, torch.Tensor):
        return state
    source = readable(gradient)
    if source is None or source.device.type != "cpu" or source.numel() > ONES:
        return state if gradient.numel() == 1 else replace(state, scaled="unknown")
    values = set(source.detach().reshape(-1).tolist())
    if values == {1.0}:
        return state
    scales_it = len(values) == 1 and any(abs(v - scale) <= 1e-6 * scale for v in values for scale in scales)
    return replace(state, scaled="scaled" if scales_it and state.scaled == "unscaled" else "unknown")


def _walk(first: Any, scales: tuple[float, ...], penalties: bool) -> RootState:
    """Below the scaled mark of a loss only marked gradients are looked for: its leaves are scaled with it."""
    seen = {first}
    stack = [(first, False)]
    scaled = unscaled = penalty = False
    while stack:
        node, below = stack.pop()
        metadata = node.metadata
        if SCALED_MARK in metadata or _is_scale_product(node, scales):
            scaled = True
            if not penalties:
                continue
            below = True
        if PENALTY_MARK in metadata:
            penalty = True
            continue
        if _divides_by_scale(node, scales):
            continue
        children = [child for child, _ in node.next_functions if child is not None]
        if not children and not below and type(node).__name__ == "AccumulateGrad":
            unscaled = True
        for child in children:
            if child not in seen:
                if len(seen) >= MAX_NODES:
                    return RootState("mixed" if scaled and unscaled else "unknown", penalty)
                seen.add(child)
                stack.append((child, below))
    if scaled and unscaled:
        return RootState("mixed", penalty)
    return RootState("scaled" if scaled else "unscaled", penalty)


def _saved_scalar(node: Any) -> float | None:
    other = getattr(node, "_saved_other", None)
    if isinstance(other, (int, float)):
        return float(other)
    if isinstance(other, torch.Tensor) and other.numel() == 1 and other.device.type == "cpu":
        return float(other.detach())
    return None


def _is_scale_product(node: Any, scales: tuple[float, ...]) -> bool:
    """`loss * scaler.get_scale()` or `loss / (1 / scale)`, by hand."""
    kind = type(node).__name__
    if kind not in ("MulBackward0", "DivBackward0"):
        return False
    value = _saved_scalar(node)
    if value is None or value == 0.0:
        return False
    factor = value if kind == "MulBackward0" else 1.0 / value
    return any(scale != 1.0 and abs(factor - scale) <= 1e-6 * scale for scale in scales)


def _divides_by_scale(node: Any, scales: tuple[float, ...]) -> bool:
    """A multiplication by 1/scale: the documented recipe of a gradient penalty; the path is unscaled again."""
    kind = type(node).__name__
    if kind not in ("MulBackward0", "DivBackward0"):
        return False
    value = _saved_scalar(node)
    if value is None or value == 0.0:
        return False
    factor = 1.0 / value if kind == "MulBackward0" else value
    return any(scale != 1.0 and abs(factor - scale) <= 1e-6 * scale for scale in scales)
