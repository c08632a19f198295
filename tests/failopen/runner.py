"""Carries out orders in forks of one prepared process: train something, plain or recorded, with a fault or without,
and print digests of what it leaves behind. A script for the fork server.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from ampscope.hooks.settings import Settings
from tests.bitexact.snapshot import Trained, snapshot
from tests.failopen import hostile, victim
from tests.failopen.faults import entries, inject, points
from tests.support.forkserver import leave, wait_for

BOOTSTRAP = Path(__file__).resolve().parents[2] / "ampscope" / "launch" / "bootstrap" / "sitecustomize.py"
CASES: dict[str, Callable[[], Trained]] = {"victim": victim.train, **hostile.CASES}
LIMIT_S = 60.0


@dataclass(frozen=True)
class Order:
    """`folder` gets what the fork prints, and `folder/run` the trace, where there is such a directory. `fault`
    raises at its call number `first` and at all later ones, or `only` at that one."""

    folder: str
    case: str = "victim"
    fault: str = ""
    first: int = 1
    only: bool = False
    look: bool = False
    """Print which points were reached and which of them are entries, instead of the digests."""


def record() -> None:
    """Start recording as `ampscope run` does it: by the bootstrap, which finds torch imported already."""
    with contextlib.suppress(ImportError):
        exec(compile(BOOTSTRAP.read_bytes(), BOOTSTRAP, "exec"), {"__file__": str(BOOTSTRAP)})


def carry_out(order: Order) -> None:
    report: dict[str, Any] = {}
    run_dir = Path(order.folder, "run")
    if run_dir.exists():
        Settings(run_dir=str(run_dir), every=1, flush_seconds=0.02).to_env(os.environ)
    if order.fault:
        calls = inject(next(p for p in points() if str(p) == order.fault), order.first, order.only)
        atexit.register(lambda: Path(order.folder, "raised").write_text(str(calls.raised)))
    with entries() if order.look else contextlib.nullcontext() as seen:
        if run_dir.exists():
            record()
        torch.manual_seed(0)
        np.random.seed(0)
        random.seed(0)
        report = snapshot(CASES[order.case]())
        if seen is not None:
            atexit._run_exitfuncs()
            report = {"reached": sorted(seen.reached), "entries": sorted(seen.entries)}
    json.dump(report, sys.stdout, indent=0)


def main(orders: str) -> None:
    """Each line of the file `orders` is one `Order` as JSON."""
    points()
    for line in Path(orders).read_text().splitlines():
        order = Order(**json.loads(line))
        began = time.monotonic()
        child = os.fork()
        if child == 0:
            for number, name in ((1, "stdout"), (2, "stderr")):
                os.dup2(os.open(f"{order.folder}/{name}", os.O_WRONLY | os.O_CREAT, 0o644), number)
            status = 1
            try:
                carry_out(order)
                status = 0
            except Exception as error:
                sys.excepthook(type(error), error, error.__traceback__)
            leave(status)
        Path(order.folder, "status").write_text(str(wait_for(child, began + LIMIT_S)[0]))


if __name__ == "__main__":
    main(*sys.argv[1:])
