from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.diagnose.judging import codes, half, judge, line_of, only, serious


def encode(x: torch.Tensor, steps: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    frequency = torch.tensor([1.0, 0.1, 0.01, 0.001])
    angle = steps.to(dtype)[:, None] * frequency.to(dtype)
    return torch.cat([x, angle.sin().to(x.dtype), angle.cos().to(x.dtype)], -1)


def diffusion(largest: int, dtype: torch.dtype, cast: torch.dtype | None = None) -> None:
    """Whole time steps, encoded by sines."""
    model = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(3):
        x = torch.randn(32, 8)
        steps = torch.randint(0, largest, (32,))
        steps[0] = largest
        optimizer.zero_grad()
        with half(dtype):
            out = model(encode(x, steps, cast or dtype))
        F.mse_loss(out.float(), x).backward()
        optimizer.step()


def identities() -> None:
    """Ids as a float feature, which autocast casts."""
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-12)
    for _ in range(3):
        ids = torch.randint(3000, 5000, (32, 3))
        optimizer.zero_grad()
        with half(torch.bfloat16):
            out = model(ids.float())
        F.mse_loss(out.float(), torch.ones(32, 1)).backward()
        optimizer.step()


def counts() -> None:
    """A large count that a mean is divided by."""
    model = nn.Linear(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(3):
        x = torch.randn(32, 16)
        n = torch.full((32, 1), 5001)
        optimizer.zero_grad()
        with half(torch.bfloat16):
            out = model(x)
            mean = (out * 5001.0) / n.to(out.dtype)
        F.mse_loss(mean.float(), x[:, :4]).backward()
        optimizer.step()


def test_time_steps(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: diffusion(3999, torch.float16))
    assert serious(found) == ["AMP416"]
    finding = only(found, "AMP416")
    assert finding.where.line == line_of(encode, "steps.to(dtype)")
    assert "multiples of 2" in finding.claim


def test_ids_that_autocast_casts(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, identities)) == ["AMP416"]


@pytest.mark.parametrize(
    ("largest", "dtype", "cast"),
    [(999, torch.float16, None), (255, torch.bfloat16, None), (3999, torch.float16, torch.float32)],
)
def test_silent_when_exact(
    tmp_path: Path, largest: int, dtype: torch.dtype, cast: torch.dtype | None
) -> None:
    assert "AMP416" not in codes(judge(tmp_path, lambda: diffusion(largest, dtype, cast)))


def test_silent_on_the_divisor_of_a_mean(tmp_path: Path) -> None:
    assert "AMP416" not in codes(judge(tmp_path, counts))
