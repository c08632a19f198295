from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from tests.diagnose.judging import half, judge, line_of, only, serious


def distances(eps: float, dtype: torch.dtype = torch.float16, duplicates: bool = True) -> None:
    """The root of a squared distance that is exactly zero."""
    model = nn.Linear(8, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**7, enabled=dtype == torch.float16)
    for _ in range(5):
        a, b = torch.randn(16, 8), torch.randn(16, 8)
        if duplicates:
            b[3] = a[3]
        optimizer.zero_grad()
        with half(dtype):
            u, v = model(a), model(b)
        distance = ((u.float() - v.float()).square().sum(1) + eps).sqrt()
        scaler.scale(distance.mean()).backward()
        scaler.step(optimizer)
        scaler.update()


def hidden_branch(safe: bool) -> None:
    """torch.where hides log(0) in forward, not its gradient."""
    model = nn.Linear(8, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**7)
    for _ in range(5):
        optimizer.zero_grad()
        with half():
            out = model(torch.randn(32, 8))
        rate = out.float().abs() * (torch.rand(32, 16) > 0.3)
        kept = torch.where(rate > 0, rate, 1.0) if safe else rate
        loss = torch.where(rate > 0, torch.log(kept), 0.0).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def test_root_of_zero(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: distances(eps=0.0))
    assert serious(found)[0] == "AMP303"
    finding = only(found, "AMP303")
    assert finding.where.line == line_of(distances, ".sqrt()")
    assert "no matter of precision" in finding.claim


def test_without_a_scaler_the_weights_go(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: distances(eps=0.0, dtype=torch.bfloat16))
    assert serious(found)[0] == "AMP303"


def test_the_branch_that_where_hides(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: hidden_branch(safe=False))
    assert serious(found)[0] == "AMP303"
    assert found.findings[0].where.line == line_of(hidden_branch, "torch.log(kept)")


@pytest.mark.parametrize(("eps", "duplicates"), [(1e-6, True), (0.0, False)])
def test_silent_with_an_eps_or_without_zeros(tmp_path: Path, eps: float, duplicates: bool) -> None:
    assert serious(judge(tmp_path, lambda: distances(eps, duplicates=duplicates))) == []


def test_silent_when_where_guards_the_argument(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: hidden_branch(safe=True))) == []


def pairs(once: bool, eps: float = 0.0) -> None:
    """Without a scaler, in bf16: one pair of equal vectors, long after the first steps, leaves NaN weights."""
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for step in range(24):
        a = torch.randn(32, 8)
        b = a + torch.randn(32, 8)
        if once and step == 12:
            b[0] = a[0]
        optimizer.zero_grad()
        with half(torch.bfloat16):
            u, v = model(a), model(b)
        apart = (u.float() - v.float()).square().sum(1)
        torch.sqrt(apart + eps).mean().backward()
        optimizer.step()


def test_a_single_bad_step_that_nobody_watched(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: pairs(once=True))
    assert serious(found) == ["AMP303"]
    finding = only(found, "AMP303")
    assert finding.where.line == line_of(pairs, "torch.sqrt")
    assert finding.where.steps == (12, 12)


@pytest.mark.parametrize(("once", "eps"), [(False, 0.0), (True, 1e-6)])
def test_silent_without_equal_vectors_or_with_an_eps_there(tmp_path: Path, once: bool, eps: float) -> None:
    assert serious(judge(tmp_path, lambda: pairs(once, eps))) == []


def learned_power(floor: float) -> None:
    """A learned exponent below one: the slope of the power is infinite where its base is zero."""
    model = nn.Linear(8, 16)
    exponent = nn.Parameter(torch.full((16,), 0.5))
    optimizer = torch.optim.SGD([*model.parameters(), exponent], lr=1e-3)
    for _ in range(5):
        optimizer.zero_grad()
        light = torch.rand(32, 16) * (torch.rand(32, 16) > 0.2)
        with half(torch.bfloat16):
            gain = model(torch.randn(32, 8))
        bright = (light * gain.float().exp() + floor).pow(exponent)
        (bright - light).square().mean().backward()
        optimizer.step()


def test_a_power_whose_exponent_is_a_tensor(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: learned_power(floor=0.0))
    assert serious(found) == ["AMP303"]
    assert only(found, "AMP303").where.line == line_of(learned_power, ".pow(exponent)")


def test_silent_where_the_power_keeps_away_from_zero(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: learned_power(floor=1e-3))) == []
