from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from tests.diagnose.judging import half, judge, only, serious


def train(weight: float, steps: int = 36) -> None:
    """Some early batches overflow and bring the scale down; the gradients of the later ones are small."""
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 256))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-8)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    for step in range(steps):
        x = torch.randn(64, 16)
        optimizer.zero_grad()
        with half():
            error = F.mse_loss(model(x), torch.randn(64, 256) * 0.05)
            loss = error.float() * (100.0 if step < 2 else 3e5 if step < 12 else weight)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def sparse() -> None:
    """Most gradients are zero because most units are off, not because of fp16."""
    emb = nn.EmbeddingBag(2000, 16)
    mlp = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 4))
    optimizer = torch.optim.AdamW([*emb.parameters(), *mlp.parameters()], lr=5e-3)
    scaler = torch.amp.GradScaler("cpu")
    for _ in range(10):
        ids = torch.randint(0, 50, (64, 6))
        optimizer.zero_grad()
        with half():
            loss = F.cross_entropy(mlp(emb(ids)), ids[:, 0] % 4)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def test_gradients_vanish_at_a_scale_that_cannot_be_raised(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: train(3e-5))
    assert serious(found) == ["AMP301"]
    finding = only(found, "AMP301")
    assert "become zero" in finding.claim
    assert all(e.value is not None for e in finding.evidence)


def test_silent_on_larger_gradients(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: train(1e3))) == []


def test_silent_on_zeros_that_are_no_underflow(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, sparse)) == []
