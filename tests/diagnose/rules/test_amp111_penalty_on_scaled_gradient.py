from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F

from ampscope.trace.reader import open_trace
from tests.diagnose.handmade import call, step, write
from tests.diagnose.judging import checked, classifier, half, judge, labelled, only, serious


def train() -> None:
    """The documented recipe: the gradients are divided by the scale before the penalty is formed."""
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
        inverse = 1.0 / scaler.get_scale()
        grads = tuple(g * inverse for g in grads)
        with half():
            penalty = torch.stack([g.float().pow(2).sum() for g in grads]).sum().sqrt()
            total = loss + 1e-3 * penalty
        scaler.scale(total).backward()
        scaler.step(optimizer)
        scaler.update()


def test_penalty_formed_from_scaled_gradients(tmp_path: Path) -> None:
    rows = [
        call(0, "autograd.grad", segment=0, scaled="scaled", detail="create_graph", file="t.py", line=8),
        call(1, "backward", segment=0, scaled="mixed", detail="penalty_on_scaled", file="t.py", line=9),
        call(
            2,
            "backward",
            segment=1,
            scaled="mixed",
            detail="create_graph penalty_on_scaled",
            file="t.py",
            line=9,
        ),
        call(3, "backward", segment=2, scaled="scaled", file="t.py", line=9),
    ]
    with open_trace(write(tmp_path, {"calls": rows, "steps": [step(i) for i in range(3)]})) as trace:
        found = checked(trace)
    assert serious(found) == ["AMP111"]
    finding = only(found, "AMP111")
    assert (finding.where.file, finding.where.line, finding.where.steps) == ("t.py", 9, (0, 1))
    assert "2 backwards" in finding.claim


def test_silent_on_the_documented_recipe(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, train)) == []
