"""A run with a known fault, recorded once: the scale grows every second step and overflows right after."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ampscope.hooks.settings import Settings
from ampscope.trace.reader import Trace, open_trace
from tests.support.forked_recorder import ForkedRecorder
from tests.support.forkserver import ForkServer

SAWTOOTH = """
import torch

torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Linear(16, 4)
opt = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**15, growth_interval=2)
for step in range(60):
    x, y = torch.randn(32, 16), torch.randint(4, (32,))
    opt.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = torch.nn.functional.cross_entropy(model(x), y, reduction="sum")
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print("done")
"""


@pytest.fixture(scope="session")
def recorder(fork_server: ForkServer) -> ForkedRecorder:
    return ForkedRecorder(fork_server)


@pytest.fixture(scope="session")
def sawtooth_dir(recorder: ForkedRecorder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run directory; the script `train.py` lies beside it."""
    folder = tmp_path_factory.mktemp("sawtooth")
    (folder / "train.py").write_text(SAWTOOTH)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run = folder / "run"
        recorder([sys.executable, "train.py"], run, Settings(str(run), quiet=True), folder)
    return run


@pytest.fixture
def sawtooth(sawtooth_dir: Path) -> Iterator[Trace]:
    with open_trace(sawtooth_dir) as trace:
        yield trace
