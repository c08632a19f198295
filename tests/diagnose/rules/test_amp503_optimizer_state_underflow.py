from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from ampscope.diagnose import Diagnosis
from tests.diagnose.judging import classifier, judge, labelled, only, serious


def train(path: Path, stored: torch.dtype, eps: float, sparse: bool = False) -> Diagnosis:
    """Plain training with small gradients; `sparse` adds an embedding most rows of which get none."""

    def run() -> None:
        model = classifier().to(stored)
        table = nn.Embedding(500, 16).to(stored)
        params = [*model.parameters(), *(table.parameters() if sparse else ())]
        optimizer = torch.optim.Adam(params, lr=1e-3, eps=eps)
        for _ in range(10):
            x, y = labelled()
            x = x.to(stored)
            if sparse:
                x = x + table(torch.randint(0, 5, (len(x),)))
            optimizer.zero_grad()
            F.cross_entropy(model(x).float(), y).backward()
            optimizer.step()

    return judge(path, run, every=2)


def test_fp16_second_moments_vanish(tmp_path: Path) -> None:
    finding = only(train(tmp_path, torch.float16, eps=1e-4), "AMP503")
    assert finding.severity == "warning"
    assert "float16" in finding.claim
    assert finding.where.tensor is not None


def test_silent_in_float32_also_where_most_rows_get_no_gradient(tmp_path: Path) -> None:
    assert serious(train(tmp_path, torch.float32, eps=1e-8, sparse=True)) == []


def test_folded_under_an_eps_that_vanishes(tmp_path: Path) -> None:
    found = train(tmp_path, torch.float16, eps=1e-8)
    assert serious(found)[0] == "AMP502"
    assert "AMP503" not in serious(found)
