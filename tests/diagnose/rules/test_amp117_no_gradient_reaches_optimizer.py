from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.diagnose.judging import classifier, half, judge, labelled, line_of, only, serious


def detached(scaled: bool, how: str = "rebuilt", steps: int = 4) -> None:
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12, enabled=scaled)
    for _ in range(steps):
        x, y = labelled()
        optimizer.zero_grad()
        with half(torch.float16 if scaled else torch.bfloat16):
            loss = F.cross_entropy(model(x).float(), y)
        if how == "rebuilt":
            loss = torch.tensor(loss.item(), requires_grad=True)
        elif how == "detached":
            loss = loss.detach()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def replaced() -> None:
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for i, layer in enumerate(model):
        if isinstance(layer, nn.Linear):
            model[i] = nn.Linear(layer.in_features, layer.out_features)
    for _ in range(4):
        x, y = labelled()
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def cleared_too_late() -> None:
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(4):
        x, y = labelled()
        F.cross_entropy(model(x), y).backward()
        optimizer.zero_grad()
        optimizer.step()


def by_hand() -> None:
    """Evolution strategies: gradients are made without any backward."""
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(4):
        for p in model.parameters():
            p.grad = torch.randn_like(p)
        optimizer.step()


def partly_frozen() -> None:
    model = classifier()
    model[0].requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(4):
        x, y = labelled()
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def updated_without_a_step() -> None:
    """The second model steps, and its scaler is checked, in every other iteration; update() runs in each."""
    models = [classifier(), classifier()]
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.01) for m in models]
    scalers = [torch.amp.GradScaler("cpu", init_scale=64.0) for _ in models]
    for it in range(4):
        for k, (model, optimizer, scaler) in enumerate(zip(models, optimizers, scalers, strict=True)):
            if k == 0 or it % 2 == 0:
                x, y = labelled()
                with half():
                    loss = F.cross_entropy(model(x), y)
                optimizer.zero_grad()
                scaler.scale(loss).backward()
                scaler.step(optimizer)
            scaler.update()


def test_rebuilt_loss_under_a_scaler(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: detached(scaled=True), raises=True)
    assert serious(found) == ["AMP117"]
    finding = only(found, "AMP117")
    assert finding.where.line == line_of(detached, ".backward()")
    assert "fresh leaf" in finding.claim


def test_rebuilt_loss_without_a_scaler(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: detached(scaled=False))
    assert serious(found) == ["AMP117"]


def test_detached_loss(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: detached(scaled=True, how="detached"), raises=True)
    assert serious(found) == ["AMP117"]
    assert "no graph" in only(found, "AMP117").claim


def test_parameters_replaced_after_the_optimizer_was_built(tmp_path: Path) -> None:
    found = judge(tmp_path, replaced)
    assert serious(found) == ["AMP117"]
    finding = only(found, "AMP117")
    assert "replaced" in finding.claim
    assert finding.where.line == line_of(replaced, "torch.optim.SGD")


def test_gradients_cleared_between_backward_and_step(tmp_path: Path) -> None:
    found = judge(tmp_path, cleared_too_late)
    assert serious(found) == ["AMP117"]
    finding = only(found, "AMP117")
    assert "cleared between" in finding.claim
    assert finding.where.line == line_of(cleared_too_late, "optimizer.zero_grad()")


@pytest.mark.parametrize("train", [by_hand, partly_frozen, lambda: detached(scaled=True, how="attached")])
def test_silent_when_gradients_arrive(tmp_path: Path, train: object) -> None:
    assert callable(train)
    assert serious(judge(tmp_path, train)) == []


def test_an_update_without_a_step_is_no_optimizer_without_gradients(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, updated_without_a_step, raises=True)) == ["AMP104"]


def head_exchanged(before: bool) -> None:
    model = classifier()
    if before:
        model[4] = nn.Linear(32, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    if not before:
        model[4] = nn.Linear(32, 4)
    for _ in range(4):
        x, y = labelled()
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def head_alone() -> None:
    """A spare head that is never used, and a body whose gradients nobody asked for."""
    model, spare = classifier(), nn.Linear(32, 9)
    optimizer = torch.optim.SGD([*model[4].parameters(), *spare.parameters()], lr=0.01)
    both = nn.ModuleDict({"model": model, "spare": spare})
    both.forward = lambda x: model(x)
    for _ in range(4):
        x, y = labelled()
        optimizer.zero_grad()
        F.cross_entropy(both(x), y).backward()
        optimizer.step()


def test_a_head_exchanged_after_the_optimizer_was_built(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: head_exchanged(before=False))
    assert serious(found) == ["AMP117"]
    finding = only(found, "AMP117")
    assert "4.weight" in finding.claim
    assert finding.where.line == line_of(head_exchanged, "torch.optim.SGD")


@pytest.mark.parametrize("train", [lambda: head_exchanged(before=True), head_alone])
def test_silent_when_all_that_the_model_uses_is_held_or_meant_to_be_left_out(
    tmp_path: Path, train: Callable[[], None]
) -> None:
    assert serious(judge(tmp_path, train)) == []
