from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.diagnose.judging import codes, judge, labelled, line_of, only, serious


def train(scale: float, clip: str, as_float: bool = False) -> None:
    """A model that is half as a whole, its loss scaled by hand, its gradients clipped."""
    model = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 4)).half()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(5):
        x, y = labelled(256)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x.half() * 8).float(), y)
        (loss * scale).backward()
        if clip == "torch":
            if as_float:
                torch._foreach_div_([p.grad for p in model.parameters() if p.grad is not None], scale)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0 if as_float else scale)
        else:
            clip_by_hand(model, scale, as_float)
        if not (clip == "torch" and as_float):
            torch._foreach_div_([p.grad for p in model.parameters() if p.grad is not None], scale)
        optimizer.step()


def clip_by_hand(model: nn.Module, limit: float, as_float: bool) -> None:
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    total = torch.stack([(g.float() if as_float else g).square().sum() for g in gradients]).sum().sqrt()
    factor = (limit / (total + 1e-6)).clamp(max=1.0)
    for g in gradients:
        g.mul_(factor)


def test_clip_grad_norm_returns_inf(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: train(2.0**14, "torch"))
    assert serious(found)[0] == "AMP306"
    finding = only(found, "AMP306")
    assert finding.where.line == line_of(train, "clip_grad_norm_")
    assert "finite" in finding.claim


def test_the_same_by_hand(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: train(2.0**12, "hand"))
    assert serious(found)[0] == "AMP306"
    assert only(found, "AMP306").where.line == line_of(clip_by_hand, "total =")


@pytest.mark.parametrize(("scale", "clip"), [(2.0**14, "torch"), (2.0**12, "hand")])
def test_silent_when_the_norm_is_float32(tmp_path: Path, scale: float, clip: str) -> None:
    assert "AMP306" not in codes(judge(tmp_path, lambda: train(scale, clip, as_float=True)))


def clip_later(as_float: bool, idle: bool = False) -> None:
    """The loss grows when no census is near: then the norm of its gradients overflows, step after step."""
    model = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 4)).half()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(70):
        x, y = labelled(256)
        optimizer.zero_grad()
        weight = 100.0 if step < 33 else 0.0 if idle else 1e4
        loss = weight * F.cross_entropy(model(x.half()).float(), y)
        loss.backward()
        clip_by_hand(model, 1.0, as_float)
        optimizer.step()


def test_a_norm_that_overflows_between_censuses(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: clip_later(as_float=False))
    assert serious(found)[0] == "AMP306"
    assert only(found, "AMP306").where.line == line_of(clip_by_hand, "total = ")


@pytest.mark.parametrize(("as_float", "idle"), [(True, False), (False, True)])
def test_silent_where_the_norm_holds_or_nothing_is_to_be_learned(
    tmp_path: Path, as_float: bool, idle: bool
) -> None:
    assert "AMP306" not in codes(judge(tmp_path, lambda: clip_later(as_float, idle)))
