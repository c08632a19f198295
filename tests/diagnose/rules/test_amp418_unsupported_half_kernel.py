from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.diagnose.judging import judge, serious
from tests.diagnose.loops import loop


def train(fixed: bool) -> None:
    r = nn.LSTM(16, 8, batch_first=True)
    h = nn.Linear(8, 4)
    m = nn.ModuleList([r, h])

    def loss_of(x: Tensor, y: Tensor, s: int) -> Tensor:
        if fixed:
            with torch.autocast("cpu", enabled=False):
                q = r(x[:, None].float())[0][:, 0]
        else:
            q = r(x[:, None])[0][:, 0]
        return F.cross_entropy(h(q).float(), y)

    loop(m, loss_of)


def test_the_fault_is_named(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: train(fixed=False), raises=True))[0] == "AMP418"


def test_the_repaired_loop_is_clean(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: train(fixed=True))) == []
