from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from tests.diagnose.judging import classifier, judge, serious
from tests.diagnose.loops import loop


def train(fixed: bool) -> None:
    m = classifier()

    def loss_of(x: Tensor, y: Tensor, s: int) -> Tensor:
        z = m(x)
        mask = torch.zeros_like(z, dtype=torch.bool)
        mask[0 if not fixed else slice(0, 0)] = True
        loss: Tensor = -(z.masked_fill(mask, float("-inf")).softmax(-1)[torch.arange(len(y)), y]).mean()
        return loss

    loop(m, loss_of)


def test_the_fault_is_named(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: train(fixed=False)))[0] == "AMP406"


def test_the_repaired_loop_is_clean(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: train(fixed=True))) == []
