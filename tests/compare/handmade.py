"""Comparisons made by hand, to be shown."""

from __future__ import annotations

import math

from ampscope.compare.config import Setting
from ampscope.compare.divergence import Divergence, Joined
from ampscope.compare.headline import Headline
from ampscope.compare.losses import Curves
from ampscope.compare.precisions import Row, Table
from ampscope.compare.runs import Comparison
from ampscope.diagnose.finding import Finding, Where

FP32 = Headline(100, 0, 0, 0.002, 2_000_000_000, True, 0.5, None, None)
FP16 = Headline(100, 7, 3, 0.0005, 900_000_000, True, 0.25, "float16", 1024.0)
DIVERGENCE = Divergence(
    4, "grad", "head.weight", "head", "float32", "float16", 3e-8, 0.0, "exact zeros 0 % and 40 %"
)
FINDING = Finding(
    "AMP403", "half-reduction-overflow", "critical", Where(), "A sum [of 3] overflowed.", "Use float32."
)


def make_table() -> Table:
    return Table(
        ("python", "train.py"),
        (
            Row("fp32", "runs/fp32", FP32, None, "healthy"),
            Row(
                "fp16",
                "runs/fp16",
                FP16,
                0.03,
                "AMP403 half-reduction-overflow +1",
                "exit status 1: RuntimeError: [no]",
            ),
            Row("bf16", "runs/bf16", None, None, "nothing recorded"),
        ),
        ("The script has no GradScaler: fp16 ran without loss scaling.",),
    )


def make_comparison(diverges: bool = True) -> Comparison:
    first = DIVERGENCE if diverges else None
    return Comparison(
        names=("runs/a", "runs/b"),
        headlines=(FP32, FP16),
        settings=(Setting("command", "python train.py [x]", "python train.py"),) if diverges else (),
        curves=Curves((0, 1), (1.0, 1.0), (1.0, math.inf if diverges else 1.0)),
        apart=1 if diverges else None,
        joined=Joined(first, (DIVERGENCE,) * 7 if diverges else (), 24, 32, 1, 0, 0.0078),
        only_one=(),
        only_two=(FINDING,) if diverges else (),
        verdicts=("No fault found.", "AMP403 …"),
    )
