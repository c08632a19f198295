from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from ampscope.diagnose import Diagnosis
from tests.diagnose.judging import classifier, judge, labelled, only, serious


def train(
    path: Path, stored: torch.dtype, beta2: float, steps: int, foreach: bool = False, fused: bool = False
) -> Diagnosis:
    """A burst of large gradients, then small ones."""

    def run() -> None:
        model = classifier().to(stored)
        kind: dict[str, bool] = {"fused": True} if fused else {"foreach": foreach}
        optimizer = torch.optim.AdamW(
            model.parameters(), lr=2e-3, betas=(0.9, beta2), weight_decay=0.0, **kind
        )
        for step in range(steps):
            x, y = labelled()
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x.to(stored)).float(), y)
            (loss * (1.0 if step < 6 else 0.01)).backward()
            optimizer.step()

    return judge(path, run, every=20, budget=1e4)


@pytest.mark.parametrize("foreach", [False, True])
def test_bf16_state_stands_still(tmp_path: Path, foreach: bool) -> None:
    found = train(tmp_path, torch.bfloat16, 0.999, 40, foreach=foreach)
    assert "AMP509" in serious(found)
    assert "AMP501" not in serious(found)
    finding = only(found, "AMP509")
    assert "bfloat16" in finding.claim
    assert "0.999" in finding.claim or "%" in finding.claim


def test_fused_steps_show_it_in_the_statistics(tmp_path: Path) -> None:
    """One op does everything, so that only the course of the state tells: it needs the time to have moved."""
    found = train(tmp_path, torch.bfloat16, 0.998, 140, fused=True)
    finding = only(found, "AMP509")
    assert "took place" in finding.claim


def test_silent_in_float32(tmp_path: Path) -> None:
    assert serious(train(tmp_path, torch.float32, 0.999, 40)) == []


def test_silent_with_a_decay_that_bf16_can_follow(tmp_path: Path) -> None:
    assert "AMP509" not in train(tmp_path, torch.bfloat16, 0.95, 40).coverage.fired


class Random(torch.optim.Optimizer):
    """Adam whose bfloat16 second moment is rounded at random."""

    def __init__(self, params: object) -> None:
        super().__init__(params, {"lr": 2e-3, "betas": (0.9, 0.995), "eps": 1e-8})  # type: ignore[arg-type]

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                v = self.state[p].setdefault("exp_avg_sq", torch.zeros_like(p, dtype=torch.bfloat16))
                exact = v.float().mul(0.995).add(p.grad.float().square(), alpha=0.005)
                bits = exact.view(torch.int32) + torch.randint(0, 1 << 16, exact.shape, dtype=torch.int32)
                v.copy_(bits.bitwise_and(-65536).view(torch.float32))
                p.add_(p.grad / (v.float().sqrt() + 1e-8), alpha=-group["lr"])


def test_stochastic_rounding_is_not_accused(tmp_path: Path) -> None:
    def run() -> None:
        model = classifier()
        optimizer = Random(model.parameters())
        for step in range(60):
            x, y = labelled()
            optimizer.zero_grad()
            (F.cross_entropy(model(x), y) * (1.0 if step < 6 else 0.01)).backward()
            optimizer.step()

    assert "AMP509" not in judge(tmp_path, run, every=20, budget=1e4).coverage.fired
