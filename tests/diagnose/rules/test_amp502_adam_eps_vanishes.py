from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from tests.diagnose.judging import half, judge, only, serious


class Tiny(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.emb, self.out = nn.Embedding(100, 16), nn.Linear(16, 100)

    def forward(self, t: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.out(self.emb(t))
        return out


def train(stored: torch.dtype, eps: float = 1e-8, steps: int = 4) -> None:
    model = Tiny().to(stored)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, eps=eps)
    scaler = torch.amp.GradScaler("cpu", enabled=stored == torch.float32)
    for _ in range(steps):
        tokens = torch.randint(0, 20, (64,))
        optimizer.zero_grad()
        with half():
            loss = F.cross_entropy(model(tokens).float(), (tokens * 3) % 20)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def test_fp16_state_gives_nan_weights(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: train(torch.float16))
    assert serious(found) == ["AMP502"]
    finding = only(found, "AMP502")
    assert finding.severity == "critical"
    assert "emb.weight" in finding.claim
    assert finding.change.set == {"optimizer.eps": "1e-4"}


def test_silent_with_an_eps_that_fp16_holds(tmp_path: Path) -> None:
    assert "AMP502" not in judge(tmp_path, lambda: train(torch.float16, eps=1e-4)).coverage.fired


def test_silent_with_float32_parameters(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: train(torch.float32))) == []
