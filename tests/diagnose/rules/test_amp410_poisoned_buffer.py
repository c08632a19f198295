from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.diagnose.judging import judge, serious
from tests.diagnose.loops import loop


def train(fixed: bool) -> None:
    m = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))

    def loss_of(x: Tensor, y: Tensor, s: int) -> Tensor:
        if s == 4 and not fixed:
            x = x.clone()
            x[0, 0] = float("inf")
        return F.cross_entropy(m(x).float(), y)

    def run() -> None:
        loop(m, loss_of, steps=8)
        m.eval()
        m(torch.randn(4, 16))

    run()


def test_the_fault_is_named(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: train(fixed=False)))[0] == "AMP410"


def test_the_repaired_loop_is_clean(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: train(fixed=True))) == []
