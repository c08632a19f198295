from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ampscope.diagnose.course import courses, growth, largest_by_step, weight_growth
from ampscope.diagnose.signals import Signals
from tests.support.recording import record


@pytest.mark.parametrize(
    ("losses", "ratio", "rise"),
    [
        ([1.0, 1.0, 1.0, 1.0], 1.0, 0),
        ([1.0, 1.0, 4.0, 16.0], 16.0, 2),
        ([4.0, 4.0, 1.0, 0.5], 0.125, 0),
        ([1.0], 1.0, 0),
    ],
)
def test_growth(losses: list[float], ratio: float, rise: int) -> None:
    found, steps = growth(np.array(losses), 20)

    assert found == pytest.approx(ratio)
    assert steps == rise


def explode() -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=3.0)
    for _ in range(6):
        x = torch.randn(64, 4)
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            out = model(x)
        F.mse_loss(out.float(), x[:, :1]).backward()
        optimizer.step()


def test_the_course_of_a_run(tmp_path: Path) -> None:
    with record(tmp_path, explode) as trace:
        s = Signals(trace)
        (course,) = courses(s)
        moved = weight_growth(s, 0, int(course.steps[-1]))

    assert list(course.steps) == list(range(6))
    assert (course.before[1:] > course.before[:-1]).all()
    assert moved is not None
    assert moved.growth > 4.0
    assert moved.update > 0.5


def test_the_largest_per_step() -> None:
    rows = pd.DataFrame({"step": [0, 0, 1, 2], "amax": [1.0, 3.0, np.inf, 2.0]})

    assert largest_by_step(rows).to_dict() == {0: 3.0, 2: 2.0}
    assert largest_by_step(rows, until=1).to_dict() == {0: 3.0}
