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
        z = m(x)
        big = z * 0 + 300.0
        (big.float() if fixed else big).sum() * 1.0
        big2 = (torch.full((64, 64), 300.0, dtype=torch.float32 if fixed else torch.float16) + z.mean()).sum()
        loss: Tensor = F.cross_entropy(z.float(), y) + 0.0 * big2
        return loss

    loop(m, loss_of)


def test_the_fault_is_named(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: train(fixed=False)))[0] == "AMP413"


def test_the_repaired_loop_is_clean(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: train(fixed=True))) == []
