from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from tests.diagnose.judging import classifier, half, judge, labelled, only, serious


def train(stored: torch.dtype, lr: float, steps: int = 12, frozen_lr: bool = False) -> None:
    model = classifier(64).to(stored)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0 if frozen_lr else lr, weight_decay=0.0)
    for _ in range(steps):
        x, y = labelled()
        optimizer.zero_grad()
        with half(torch.bfloat16):
            loss = F.cross_entropy(model(x.to(stored)).float(), y)
        loss.backward()
        optimizer.step()


class Compensated(torch.optim.Optimizer):
    """SGD that carries what rounding lost (Kahan), as the half-precision optimizers of libraries do."""

    def __init__(self, params: object, lr: float) -> None:
        super().__init__(params, {"lr": lr})  # type: ignore[arg-type]

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                lost = self.state[p].setdefault("kahan_comp", torch.zeros_like(p))
                lost.add_(p.grad, alpha=-group["lr"])
                before = p.clone()
                p.add_(lost)
                lost.sub_(p - before)


def compensated() -> None:
    model = classifier(64).bfloat16()
    optimizer = Compensated(model.parameters(), 1e-4)
    for _ in range(12):
        x, y = labelled()
        optimizer.zero_grad()
        F.cross_entropy(model(x.bfloat16()).float(), y).backward()
        optimizer.step()


def test_bf16_weights_do_not_move(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: train(torch.bfloat16, lr=1e-5))
    assert serious(found) == ["AMP501"]
    finding = only(found, "AMP501")
    assert finding.severity == "critical"
    assert "bfloat16" in finding.claim
    assert finding.where.tensor is not None


@pytest.mark.parametrize(("stored", "lr"), [(torch.float32, 1e-5), (torch.bfloat16, 3e-2)])
def test_silent_in_float32_and_at_larger_rates(tmp_path: Path, stored: torch.dtype, lr: float) -> None:
    assert serious(judge(tmp_path, lambda: train(stored, lr))) == []


def test_silent_when_the_learning_rate_is_zero(tmp_path: Path) -> None:
    assert "AMP501" not in judge(tmp_path, lambda: train(torch.bfloat16, 1e-5, frozen_lr=True)).coverage.fired


def test_silent_when_the_optimizer_carries_what_is_lost(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, compensated)) == []
