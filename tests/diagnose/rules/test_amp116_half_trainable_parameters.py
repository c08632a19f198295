from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.diagnose.judging import half, judge, labelled, line_of, only, serious


class Adapted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Linear(16, 32).requires_grad_(False).half()
        self.adapter = nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.adapter(torch.relu(self.backbone(x)))
        return out


def train(half_adapter: bool, unscale: bool = False) -> None:
    model = Adapted()
    if half_adapter:
        model.adapter.half()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    for _ in range(6):
        x, y = labelled()
        optimizer.zero_grad()
        with half():
            loss = F.cross_entropy(model(x).float(), y)
        scaler.scale(loss).backward()
        if unscale:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()


@pytest.mark.parametrize(("unscale", "text"), [(False, "scaler.step("), (True, "scaler.unscale_(")])
def test_trainable_fp16_parameters(tmp_path: Path, unscale: bool, text: str) -> None:
    found = judge(tmp_path, lambda: train(half_adapter=True, unscale=unscale), raises=True)
    assert serious(found) == ["AMP116"]
    finding = only(found, "AMP116")
    assert finding.where.line == line_of(train, text)
    if not unscale:
        assert finding.where.module == "adapter"
        assert "adapter.weight" in finding.claim


def test_silent_on_a_frozen_fp16_backbone(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: train(half_adapter=False))) == []
