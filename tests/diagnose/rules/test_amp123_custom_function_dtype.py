from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.diagnose.judging import half, judge, labelled, line_of, only, serious


class Bare(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        return x @ weight.t()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        x, weight = ctx.saved_tensors
        return grad @ weight, grad.t() @ x


class Decorated(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float16)  # type: ignore[untyped-decorator]
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        return x @ weight.t()

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        x, weight = ctx.saved_tensors
        return grad @ weight, grad.t() @ x


def train(function: Any) -> None:
    weight = nn.Parameter(torch.randn(4, 16) / 4)
    optimizer = torch.optim.SGD([weight], lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    for _ in range(4):
        x, y = labelled()
        optimizer.zero_grad()
        with half():
            loss = F.cross_entropy(function.apply(x, weight), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def test_two_dtypes_in_a_custom_backward(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: train(Bare), raises=True)
    assert serious(found) == ["AMP123"]
    finding = only(found, "AMP123")
    assert finding.where.line == line_of(Bare.backward, "grad @ weight")
    assert "custom_fwd" in finding.recommendation


def test_silent_with_custom_fwd_and_bwd(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: train(Decorated))) == []
