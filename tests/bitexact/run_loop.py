"""Runs one loop of the zoo as a script and writes the digests of what it leaves behind as JSON.

python run_loop.py LOOP PRECISION OUT [LEVEL RUN_DIR]
"""

from __future__ import annotations

import contextlib
import json
import random
import sys
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bitexact.registry import LOOPS
from tests.bitexact.snapshot import snapshot


def recorder_at(level: str, run_dir: str) -> contextlib.AbstractContextManager[object]:
    """`level` of every step; count and rest are what is left when the budget has no pulse, and no count."""
    import ampscope
    from ampscope.hooks import budget

    if level not in ("count", "rest"):
        return ampscope.Recorder(run_dir, level=level, every=1, strict=True)
    budget.PULSES = 0.0
    budget.COUNTS = 0.0 if level == "rest" else 100.0
    return ampscope.Recorder(run_dir, level="pulse", strict=True)


def main(name: str, precision: str, out: str, level: str = "", run_dir: str = "") -> None:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    np.random.seed(2)
    random.seed(3)
    recorder: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
    if level:
        recorder = recorder_at(level, run_dir)
    with recorder:
        trained = LOOPS[name](precision)
    Path(out).write_text(json.dumps(snapshot(trained)))


main(*sys.argv[1:])
