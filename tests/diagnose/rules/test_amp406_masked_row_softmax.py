from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.diagnose.judging import half, judge, line_of, only, serious


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, valid: torch.Tensor, mask: str) -> torch.Tensor:
    scores = q @ k.transpose(1, 2)
    if mask == "inf":
        scores = scores.masked_fill(~valid[:, None], float("-inf"))
    elif mask == "constant":
        scores = scores + (~valid[:, None]).to(scores.dtype) * -1e9
    elif mask == "refused":
        scores = scores.masked_fill(~valid[:, None], -1e9)
    else:
        scores = scores.masked_fill(~valid[:, None], torch.finfo(scores.dtype).min)
    return scores.softmax(-1) @ v


def train(mask: str, empty: bool = True, dtype: torch.dtype = torch.float16) -> None:
    project, head = nn.Linear(16, 24), nn.Linear(8, 4)
    optimizer = torch.optim.Adam([*project.parameters(), *head.parameters()], lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**7, enabled=dtype == torch.float16)
    for _ in range(5):
        x = torch.randn(6, 7, 16)
        lengths = torch.randint(1, 8, (6,))
        if empty:
            lengths[1] = 0
        valid = torch.arange(7) < lengths[:, None]
        optimizer.zero_grad()
        with half(dtype):
            q, k, v = project(x).chunk(3, -1)
            out = head(attend(q, k, v, valid, mask).mean(1))
        loss = F.cross_entropy(out.float(), x[:, 0, :4].argmax(1))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_an_empty_row(tmp_path: Path, dtype: torch.dtype) -> None:
    found = judge(tmp_path, lambda: train("inf", dtype=dtype))
    assert serious(found)[0] == "AMP406"
    assert only(found, "AMP406").where.line == line_of(attend, "scores.softmax")


def test_a_constant_that_becomes_infinite(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: train("constant"))
    assert serious(found) == ["AMP406"]
    assert "-1e+09" in only(found, "AMP406").claim


def test_a_constant_that_is_refused(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: train("refused"), raises=True)
    assert serious(found) == ["AMP406"]
    assert only(found, "AMP406").where.line == line_of(attend, "masked_fill(~valid[:, None], -1e9)")


@pytest.mark.parametrize(("mask", "empty"), [("inf", False), ("constant", False), ("finite", True)])
def test_silent_on_masks_that_leave_something(tmp_path: Path, mask: str, empty: bool) -> None:
    assert serious(judge(tmp_path, lambda: train(mask, empty))) == []
