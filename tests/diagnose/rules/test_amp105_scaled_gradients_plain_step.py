from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from tests.diagnose.judging import classifier, half, judge, labelled, line_of, only, serious


def train(how: str, steps: int = 12) -> None:
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    for _ in range(steps):
        x, y = labelled()
        optimizer.zero_grad()
        with half():
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        if how == "plain":
            optimizer.step()
        elif how == "unscaled":
            scaler.unscale_(optimizer)
            optimizer.step()
            scaler.update()
        elif how == "by hand":
            for p in model.parameters():
                assert p.grad is not None
                p.grad.div_(scaler.get_scale())
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()


def test_plain_step_on_scaled_gradients(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: train("plain"))
    assert serious(found) == ["AMP105"]
    finding = only(found, "AMP105")
    assert finding.where.line == line_of(train, "optimizer.step()")
    assert "2^10" in finding.claim or "1024" in finding.claim


@pytest.mark.parametrize("how", ["through the scaler", "unscaled", "by hand"])
def test_silent_when_the_scale_is_taken_out(tmp_path: Path, how: str) -> None:
    assert serious(judge(tmp_path, lambda: train(how))) == []


def with_closure(unscale: bool) -> None:
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    for _ in range(12):
        x, y = labelled()

        def closure(x: torch.Tensor = x, y: torch.Tensor = y) -> float:
            optimizer.zero_grad()
            with half():
                loss = F.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            if unscale:
                scaler.unscale_(optimizer)
            return float(loss.detach())

        optimizer.step(closure)
        if unscale:
            scaler.update()


def test_a_closure_that_scales(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: with_closure(unscale=False))
    assert serious(found)[0] == "AMP105"
    assert only(found, "AMP105").where.line == line_of(with_closure, "optimizer.step(closure)")


def test_silent_on_a_closure_that_unscales(tmp_path: Path) -> None:
    assert "AMP105" not in serious(judge(tmp_path, lambda: with_closure(unscale=True)))
