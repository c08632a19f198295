from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from ampscope.diagnose.inputs import first_trouble, half_inputs, outside_inputs
from ampscope.diagnose.signals import Signals
from tests.support.recording import record


def train(value: float, half_before: bool) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    if half_before:
        model = model.half()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    for step in range(5):
        x = torch.randn(8, 4)
        if step == 2:
            x[1, 1] = value
        optimizer.zero_grad()
        out = model(x.half() if half_before else x)
        F.mse_loss(out.float(), torch.zeros(8, 2)).backward()
        optimizer.step()


def test_nan_comes_from_outside(tmp_path: Path) -> None:
    with record(tmp_path, lambda: train(float("nan"), half_before=False)) as trace:
        s = Signals(trace)
        assert first_trouble(s) == (0, 0, 2)
        assert outside_inputs(s)["nan"].tolist() == [1]
        assert half_inputs(s).empty


def test_infinities_in_half_may_come_from_the_cast(tmp_path: Path) -> None:
    with record(tmp_path, lambda: train(1e6, half_before=True)) as trace:
        s = Signals(trace)
        assert outside_inputs(s).empty
        assert half_inputs(s)["posinf"].tolist() == [1]


def test_nothing_in_a_healthy_run(tmp_path: Path) -> None:
    with record(tmp_path, lambda: train(1.0, half_before=False)) as trace:
        s = Signals(trace)
        assert first_trouble(s) is None
        assert outside_inputs(s).empty
