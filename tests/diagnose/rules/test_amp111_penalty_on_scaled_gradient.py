from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F

from tests.diagnose.judging import classifier, half, judge, labelled, line_of, only, serious


def train(divide: bool) -> None:
    model = classifier()
    params = list(model.parameters())
    optimizer = torch.optim.SGD(params, lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)
    for _ in range(6):
        x, y = labelled()
        optimizer.zero_grad()
        with half():
            loss = F.cross_entropy(model(x), y)
        grads = torch.autograd.grad(scaler.scale(loss), params, create_graph=True)
        if divide:
            inverse = 1.0 / scaler.get_scale()
            grads = tuple(g * inverse for g in grads)
        with half():
            penalty = torch.stack([g.float().pow(2).sum() for g in grads]).sum().sqrt()
            total = loss + 1e-3 * penalty
        scaler.scale(total).backward()
        scaler.step(optimizer)
        scaler.update()


def test_penalty_formed_from_scaled_gradients(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: train(divide=False))
    finding = only(found, "AMP111")
    assert finding.where.line == line_of(train, "scaler.scale(total).backward()")
    assert serious(found)[0] == "AMP111"


def test_silent_on_the_documented_recipe(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: train(divide=True))) == []
