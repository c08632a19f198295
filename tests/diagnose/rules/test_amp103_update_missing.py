from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.diagnose.judging import classifier, half, judge, labelled, line_of, only, serious


def early_continue(repaired: bool, clear_first: bool = True) -> None:
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14)
    for i in range(6):
        x, y = labelled()
        if clear_first:
            optimizer.zero_grad()
        with half():
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if i == 3 and not repaired:
            continue
        scaler.step(optimizer)
        scaler.update()
        if not clear_first:
            optimizer.zero_grad()


def update_forgotten() -> None:
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14)
    for _ in range(4):
        x, y = labelled()
        optimizer.zero_grad()
        with half():
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)


def scaler_per_iteration() -> None:
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(5):
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14)
        x, y = labelled()
        optimizer.zero_grad()
        with half():
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)


@pytest.mark.parametrize("clear_first", [True, False])
def test_an_iteration_that_ends_before_update(tmp_path: Path, clear_first: bool) -> None:
    found = judge(tmp_path, lambda: early_continue(repaired=False, clear_first=clear_first), raises=True)
    assert serious(found) == ["AMP103"]
    finding = only(found, "AMP103")
    assert finding.where.line == line_of(early_continue, "scaler.unscale_(")
    assert finding.symptoms


def test_update_forgotten(tmp_path: Path) -> None:
    found = judge(tmp_path, update_forgotten, raises=True)
    assert serious(found) == ["AMP103"]
    assert "scaler.step" in only(found, "AMP103").claim


def test_a_scaler_in_every_iteration_never_adapts(tmp_path: Path) -> None:
    found = judge(tmp_path, scaler_per_iteration)
    assert serious(found) == ["AMP103"]
    assert "5 GradScalers" in only(found, "AMP103").claim


def test_silent_when_every_iteration_updates(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: early_continue(repaired=True))) == []
