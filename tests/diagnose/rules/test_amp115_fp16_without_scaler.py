from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.diagnose.judging import classifier, half, judge, labelled, line_of, only, serious


def small_gradients(how: str, steps: int = 10) -> None:
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 256))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", enabled=how == "scaler")
    for _ in range(steps):
        x = torch.randn(64, 16)
        optimizer.zero_grad()
        with half(torch.bfloat16 if how == "bf16" else torch.float16):
            loss = 1e-3 * F.mse_loss(model(x), torch.randn(64, 256) * 0.05)
        if how == "by hand":
            (loss * 65536.0).backward()
            for p in model.parameters():
                assert p.grad is not None
                p.grad.div_(65536.0)
            optimizer.step()
        else:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()


def large_gradients() -> None:
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(6):
        x, y = labelled()
        optimizer.zero_grad()
        with half():
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()


def only_evaluation() -> None:
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(6):
        x, y = labelled()
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        with torch.no_grad(), half():
            model(x)


def test_gradients_vanish_without_a_scaler(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: small_gradients("nothing"))
    assert serious(found) == ["AMP115"]
    finding = only(found, "AMP115")
    assert finding.where.line == line_of(small_gradients, "scaler.scale(loss).backward()")
    assert "become zero" in finding.claim
    assert any(e.basis == "observed" for e in finding.evidence)
    assert any("AMP301" in s for s in finding.symptoms)


@pytest.mark.parametrize("how", ["scaler", "by hand", "bf16"])
def test_silent_with_loss_scaling_and_with_bf16(tmp_path: Path, how: str) -> None:
    assert serious(judge(tmp_path, lambda: small_gradients(how))) == []


def test_a_note_where_nothing_is_lost(tmp_path: Path) -> None:
    found = judge(tmp_path, large_gradients)
    assert serious(found) == []
    assert only(found, "AMP115").severity == "info"


def test_silent_when_only_evaluation_runs_in_fp16(tmp_path: Path) -> None:
    assert "AMP115" not in judge(tmp_path, only_evaluation).coverage.fired
