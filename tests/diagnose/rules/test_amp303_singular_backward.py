from __future__ import annotations

from pathlib import Path

import torch.nn.functional as F

from tests.diagnose.judging import classifier, judge, serious
from tests.diagnose.loops import loop


def train(fixed: bool) -> None:
    m = classifier()
    loop(
        m,
        lambda x, y, s: (
            ((F.relu(m(x).float()) - F.relu(m(x).float())) ** 2 + (1e-6 if fixed else 0.0)).sqrt().mean()
            + F.cross_entropy(m(x).float(), y)
        ),
    )


def test_the_fault_is_named(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: train(fixed=False)))[0] == "AMP303"


def test_the_repaired_loop_is_clean(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: train(fixed=True))) == []
