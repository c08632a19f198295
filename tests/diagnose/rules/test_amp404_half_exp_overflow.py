from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.diagnose.judging import half, judge, labelled, line_of, only, serious


def divergence(mu: torch.Tensor, logvar: torch.Tensor, clamp: bool) -> torch.Tensor:
    if clamp:
        logvar = logvar.float().clamp(max=10.0)
    return -0.5 * (1 + logvar - mu**2 - logvar.exp()).mean()


def autoencoder(spread: float, clamp: bool = False, dtype: torch.dtype = torch.float16) -> None:
    encoder, decoder = nn.Linear(16, 8), nn.Linear(4, 16)
    with torch.no_grad():
        encoder.weight.mul_(spread)
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-4)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**7, enabled=dtype == torch.float16)
    for _ in range(6):
        x, _ = labelled()
        optimizer.zero_grad()
        with half(dtype):
            mu, logvar = encoder(x).chunk(2, -1)
            loss = F.mse_loss(decoder(mu), x) + divergence(mu, logvar, clamp)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def rates() -> None:
    """A model that is half as a whole, without scaler or modules around the exp."""
    model = nn.Linear(16, 1).half()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    for _ in range(4):
        x, _ = labelled()
        optimizer.zero_grad()
        rate = torch.exp(model(x.half()) + 12.0)
        loss = (rate - 3 * rate.log()).float().mean()
        loss.backward()
        optimizer.step()


def test_kl_term(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: autoencoder(9.0))
    assert serious(found) == ["AMP404"]
    finding = only(found, "AMP404")
    assert finding.where.line == line_of(divergence, "logvar.exp()")
    assert finding.where.op == "aten::exp"


def test_a_rate_in_a_half_model(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, rates))[0] == "AMP404"


@pytest.mark.parametrize(
    ("spread", "clamp", "dtype"),
    [(1.0, False, torch.float16), (9.0, True, torch.float16), (9.0, False, torch.bfloat16)],
)
def test_silent(tmp_path: Path, spread: float, clamp: bool, dtype: torch.dtype) -> None:
    assert serious(judge(tmp_path, lambda: autoencoder(spread, clamp, dtype))) == []
