from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from tests.diagnose.judging import classifier, half, judge, labelled, line_of, only, serious


def train(enabled: bool, dtype: torch.dtype = torch.bfloat16, stored: torch.dtype = torch.float32) -> None:
    model = classifier().to(stored)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", enabled=enabled)
    for _ in range(10):
        x, y = labelled()
        optimizer.zero_grad()
        with half(dtype):
            loss = F.cross_entropy(model(x).float(), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16])
def test_scaler_with_bf16(tmp_path: Path, stored: torch.dtype) -> None:
    found = judge(tmp_path, lambda: train(enabled=True, stored=stored))
    finding = only(found, "AMP114")
    assert finding.severity == "warning"
    assert finding.where.line == line_of(train, "GradScaler(")
    assert finding.change.set == {"scaler.enabled": "false"}
    assert serious(found)[0] == "AMP114"


def test_silent_when_the_scaler_is_disabled(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: train(enabled=False))) == []


def test_silent_with_fp16(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: train(enabled=True, dtype=torch.float16))) == []
