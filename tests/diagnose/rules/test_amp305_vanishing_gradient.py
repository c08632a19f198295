from __future__ import annotations

from pathlib import Path

import torch.nn.functional as F
from torch import nn

from tests.diagnose.judging import classifier, judge, serious
from tests.diagnose.loops import loop


def train(fixed: bool) -> None:
    m = nn.Sequential(*[q for _ in range(14) for q in (nn.Linear(16, 16), nn.Sigmoid())], nn.Linear(16, 4))
    if fixed:
        m = classifier()
    loop(m, lambda x, y, s: F.cross_entropy(m(x), y), steps=12, scale=None, autocast=False)


def test_the_fault_is_named(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: train(fixed=False)))[0] == "AMP305"


def test_the_repaired_loop_is_clean(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: train(fixed=True))) == []
