from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.diagnose.judging import classifier, judge, serious
from tests.diagnose.loops import loop


def train(fixed: bool) -> None:
    m = classifier()

    def loss_of(x: Tensor, y: Tensor, s: int) -> Tensor:
        a = m[0](x) * 8
        b = a + torch.randn_like(a) * 1e-3
        if fixed:
            a, b = a.float(), b.float()
            d = ((a - b) ** 2).sum(1) + 1e-6
        else:
            d = (a * a).sum(1) + (b * b).sum(1) - 2 * (a * b).sum(1)
        return torch.sqrt(d).mean() + F.cross_entropy(m(x).float(), y)

    loop(m, loss_of)


def test_the_fault_is_named(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: train(fixed=False)))[0] == "AMP409"


def test_the_repaired_loop_is_clean(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: train(fixed=True))) == []
