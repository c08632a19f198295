from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.diagnose.judging import classifier, half, judge, labelled, line_of, only, serious

Middle = Callable[[nn.Module, torch.optim.Optimizer, torch.amp.GradScaler], object]


def train(middle: Middle, steps: int = 10) -> None:
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14)
    for _ in range(steps):
        x, y = labelled()
        optimizer.zero_grad()
        with half():
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        middle(model, optimizer, scaler)
        scaler.step(optimizer)
        scaler.update()


def clip_scaled(model: nn.Module, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)


def clip_values_scaled(
    model: nn.Module, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler
) -> None:
    nn.utils.clip_grad_value_(model.parameters(), 0.5)


def noise_scaled(model: nn.Module, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler) -> None:
    for p in model.parameters():
        assert p.grad is not None
        p.grad.add_(torch.randn_like(p.grad), alpha=300.0)


def unscale_then_clip(
    model: nn.Module, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler
) -> None:
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)


def clip_at_scaled_limit(
    model: nn.Module, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler
) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), 1.0 * scaler.get_scale())


def measure_only(model: nn.Module, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), float("inf"))


def average(model: nn.Module, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler) -> None:
    for p in model.parameters():
        assert p.grad is not None
        p.grad.div_(4)


def average_of_replicas(
    model: nn.Module, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler
) -> None:
    """What an all_reduce by hand does: the scaled gradients of another batch are added, and the sum is halved."""
    own = [p.grad for p in model.parameters()]
    x, y = labelled()
    with half():
        loss = F.cross_entropy(model(x), y)
    others = torch.autograd.grad(scaler.scale(loss), list(model.parameters()))
    for grad, other in zip(own, others, strict=True):
        assert grad is not None
        grad.add_(other).div_(2)


def test_clip_of_scaled_gradients_is_named_with_its_line(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: train(clip_scaled))
    finding = found.findings[0]
    assert finding.code == "AMP101"
    assert finding.severity == "critical"
    assert finding.where.line == line_of(clip_scaled, "clip_grad_norm_")
    assert finding.where.file == __file__
    assert finding.where.steps == (0, 9)
    assert "2^14" in finding.claim
    assert "unscale_" in finding.recommendation
    assert serious(found) == ["AMP101"]


@pytest.mark.parametrize("middle", [clip_values_scaled, noise_scaled])
def test_other_edits_of_scaled_gradients(tmp_path: Path, middle: Middle) -> None:
    found = judge(tmp_path, lambda: train(middle))
    assert serious(found)[0] == "AMP101"
    assert only(found, "AMP101").evidence


@pytest.mark.parametrize(
    "middle", [unscale_then_clip, clip_at_scaled_limit, measure_only, average, average_of_replicas]
)
def test_silent_on_the_repaired_loop_and_its_look_alikes(tmp_path: Path, middle: Middle) -> None:
    assert serious(judge(tmp_path, lambda: train(middle))) == []


def to_norm(limit: float) -> Middle:
    """A clip by norm written by hand, with one factor for all gradients."""

    def middle(model: nn.Module, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler) -> None:
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        most = limit if limit < 100.0 else 0.1 * scaler.get_scale()
        total = float(torch.stack(torch._foreach_norm(grads)).norm())
        torch._foreach_mul_(grads, min(1.0, most / total))

    return middle


@pytest.mark.parametrize("limit", [0.5, 1.0])
def test_a_clip_by_norm_written_by_hand(tmp_path: Path, limit: float) -> None:
    found = judge(tmp_path, lambda: train(to_norm(limit)))
    assert serious(found) == ["AMP101"]
    assert f"norm of {limit:g}" in only(found, "AMP101").claim


def test_silent_on_a_clip_by_hand_whose_limit_follows_the_scale(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: train(to_norm(1e6)))) == []
