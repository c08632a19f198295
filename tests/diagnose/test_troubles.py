from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from ampscope.diagnose.signals import Signals
from ampscope.diagnose.troubles import lasting, troubles_of
from tests.support.recording import amp_training, record


def bad_steps(bad: tuple[int, ...], scaler: bool, steps: int = 7) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    grad_scaler = torch.amp.GradScaler("cpu", init_scale=4.0, enabled=scaler)
    for step in range(steps):
        x = torch.randn(8, 4)
        if step in bad:
            x[0, 0] = float("nan")
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(x)
        grad_scaler.scale(F.mse_loss(out.float(), x[:, :2].nan_to_num())).backward()
        grad_scaler.step(optimizer)
        grad_scaler.update()


def bad_gradients() -> None:
    """The loss is finite, its gradient is not, and nothing stops the step."""
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(3):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(torch.zeros(8, 4))
        (out.float() * 0.0).square().sum().sqrt().backward()
        optimizer.step()


def test_one_bad_batch_under_a_scaler(tmp_path: Path) -> None:
    with record(tmp_path, lambda: bad_steps((3,), scaler=True)) as trace:
        s = Signals(trace)
        (trouble,) = troubles_of(s).values()
        still = lasting(s, trouble.key)

    assert (trouble.step, trouble.bad_forward, trouble.skipped, trouble.poisoned) == (3, True, True, False)
    assert not still


def test_without_a_scaler_it_lasts(tmp_path: Path) -> None:
    with record(tmp_path, lambda: bad_steps((3,), scaler=False)) as trace:
        s = Signals(trace)
        troubles = list(troubles_of(s).values())
        still = lasting(s, troubles[0].key)

    assert [t.step for t in troubles] == [3, 4, 5, 6]
    assert still


def test_the_search_for_the_scale(tmp_path: Path) -> None:
    with record(tmp_path, lambda: amp_training(6, init_scale=2.0**30)) as trace:
        troubles = list(troubles_of(Signals(trace)).values())

    assert troubles
    assert all(t.searching and not t.bad_forward for t in troubles)


def test_a_step_that_ruined_the_weights(tmp_path: Path) -> None:
    with record(tmp_path, bad_gradients) as trace:
        troubles = list(troubles_of(Signals(trace)).values())

    assert [(t.step, t.poisoned) for t in troubles] == [(0, True), (1, False), (2, False)]
