from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from tests.diagnose.judging import classifier, judge, labelled, serious


def train(fixed: bool) -> None:
    m = classifier(64).half()
    o = torch.optim.SGD(m.parameters(), lr=0.5)
    for _i in range(8):
        x, y = labelled()
        o.zero_grad()
        loss = F.cross_entropy(m(x.half()).float(), y) * (1.0 if fixed else 1e5)
        loss.backward()
        nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        o.step()


def test_the_fault_is_named(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: train(fixed=False)))[0] == "AMP306"


def test_the_repaired_loop_is_clean(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: train(fixed=True))) == []
