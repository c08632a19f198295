from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.diagnose.judging import judge, serious
from tests.diagnose.loops import loop


def train(fixed: bool) -> None:
    m = nn.Linear(16, 1)

    def loss_of(x: Tensor, y: Tensor, s: int) -> Tensor:
        z = m(x * 200).squeeze(-1)
        t = (y > 1).float()
        return (
            F.binary_cross_entropy_with_logits(z.float(), t)
            if fixed
            else F.binary_cross_entropy(torch.sigmoid(z), t.half())
        )

    loop(m, loss_of, steps=10)


def test_the_fault_is_named(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: train(fixed=False)))[0] == "AMP304"


def test_the_repaired_loop_is_clean(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: train(fixed=True))) == []
