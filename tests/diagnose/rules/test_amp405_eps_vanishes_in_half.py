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
        h = m(x)
        h = h * (torch.arange(len(x)) > 3).to(h.dtype)[:, None]
        return F.cross_entropy((h / (h.norm(dim=1, keepdim=True) + (1e-3 if fixed else 1e-8))).float(), y)

    loop(m, loss_of)


def test_the_fault_is_named(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: train(fixed=False)))[0] == "AMP405"


def test_the_repaired_loop_is_clean(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: train(fixed=True))) == []
