from __future__ import annotations

from pathlib import Path

import torch.nn.functional as F
from torch import Tensor

from tests.diagnose.judging import classifier, judge, serious
from tests.diagnose.loops import loop


def train(fixed: bool) -> None:
    m = classifier()

    def loss_of(x: Tensor, y: Tensor, s: int) -> Tensor:
        if not fixed:
            x = x.clone()
            x[3, 2] = float("nan")
        return F.cross_entropy(m(x).float(), y)

    loop(m, loss_of)


def test_the_fault_is_named(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: train(fixed=False)))[0] == "AMP414"


def test_the_repaired_loop_is_clean(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: train(fixed=True))) == []
