from __future__ import annotations

from collections.abc import Iterable
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


class Adam(torch.optim.Optimizer):
    """Adam on bfloat16 weights that loses nothing: `how` is stochastic, or compensated by buffers outside its state."""

    def __init__(self, params: Iterable[torch.Tensor], how: str, lr: float) -> None:
        super().__init__(params, {"lr": lr})
        self.how = how
        self.lost = {p: torch.zeros_like(p) for group in self.param_groups for p in group["params"]}

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["exp_avg"], state["exp_avg_sq"] = torch.zeros(2, *p.shape)
                    state["step"] = 0
                state["step"] += 1
                g, k = p.grad.float(), state["step"]
                state["exp_avg"].lerp_(g, 0.1)
                state["exp_avg_sq"].lerp_(g * g, 0.001)
                root = (state["exp_avg_sq"] / (1 - 0.999**k)).sqrt() + 1e-8
                update = -group["lr"] * state["exp_avg"] / (1 - 0.9**k) / root
                if self.how == "stochastic":
                    noise = torch.randint(0, 1 << 16, p.shape, dtype=torch.int32)
                    bits = (p.float() + update).view(torch.int32) + noise
                    p.copy_((bits >> 16 << 16).view(torch.float32))
                else:
                    wanted = update + self.lost[p]
                    before = p.clone()
                    p.add_(wanted.to(p.dtype))
                    self.lost[p].copy_(wanted - (p.float() - before.float()))


@pytest.mark.parametrize("how", ["stochastic", "compensated"])
def test_silent_when_small_updates_were_seen_to_arrive(tmp_path: Path, how: str) -> None:
    def run() -> None:
        model = classifier(64).bfloat16()
        optimizer = Adam(model.parameters(), how, lr=1e-5)
        for _ in range(60):
            x, y = labelled()
            optimizer.zero_grad()
            F.cross_entropy(model(x.bfloat16()).float(), y).backward()
            optimizer.step()

    found = judge(tmp_path, run)
    assert "AMP501" in found.coverage.clean
    assert serious(found) == []
