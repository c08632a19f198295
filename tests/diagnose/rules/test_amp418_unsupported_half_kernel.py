from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.diagnose.judging import half, judge, labelled, line_of, only, serious


def determinant(c: torch.Tensor, cast: torch.dtype) -> torch.Tensor:
    return torch.logdet(c.to(cast) + torch.eye(8, dtype=cast))


def gaussian(cast: torch.dtype) -> None:
    model = nn.Linear(16, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(3):
        x, _ = labelled()
        optimizer.zero_grad()
        with half():
            h = model(x)
        with torch.autocast("cpu", enabled=False):
            loss = determinant(h.float().t() @ h.float(), cast)
        loss.float().backward()
        optimizer.step()


def distances() -> None:
    """A kernel that is missing inside a model that is half as a whole."""
    model = nn.Linear(16, 8).half()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x, _ = labelled()
    h = model(x.half())
    torch.cdist(h, h.detach(), p=1.0).mean().backward()
    optimizer.step()


def dtype_mismatch() -> None:
    model = nn.Linear(16, 8)
    with half():
        h = model(torch.randn(4, 16))
    F.mse_loss(nn.Linear(8, 4)(h), torch.zeros(4, 4)).backward()


def other_error() -> None:
    model = nn.Linear(16, 8)
    with half():
        F.mse_loss(model(torch.randn(4, 16)), torch.zeros(4, 8)).backward()
    raise ValueError("the data loader found no files for fp16 training")


@pytest.mark.parametrize("cast", [torch.float16, torch.bfloat16])
def test_linear_algebra(tmp_path: Path, cast: torch.dtype) -> None:
    found = judge(tmp_path, lambda: gaussian(cast), raises=True)
    assert serious(found) == ["AMP418"]
    finding = only(found, "AMP418")
    assert finding.where.line == line_of(determinant, "torch.logdet")
    assert str(cast).removeprefix("torch.") in finding.claim


def test_a_half_model(tmp_path: Path) -> None:
    found = judge(tmp_path, distances, raises=True)
    assert serious(found)[0] == "AMP418"
    assert "cdist" in only(found, "AMP418").claim


def test_silent_in_float32(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: gaussian(torch.float32))) == []


@pytest.mark.parametrize("train", [dtype_mismatch, other_error])
def test_silent_on_other_exceptions(tmp_path: Path, train: object) -> None:
    assert callable(train)
    assert "AMP418" not in serious(judge(tmp_path, train, raises=True))
