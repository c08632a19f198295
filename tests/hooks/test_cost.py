"""What ampscope does on a step that it does not sample: counted, not timed."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch import nn

import ampscope
from ampscope.hooks import budget, install
from ampscope.hooks.blocks import BLOCKS

OURS = os.path.dirname(ampscope.__file__) + os.sep
OFF_STEPS = 10
READS = ("sum", "item", "detach", "clone", "to", "copy_", "tolist", "cpu")


def deep(layers: int) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*[nn.Linear(8, 8) for _ in range(layers)])


def loop(model: nn.Module, amp: bool) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, enabled=amp)
    x = torch.randn(4, 8)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16, enabled=amp):
            loss = model(x).sum()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()

    return step


def tensor_calls(step: Callable[[], None]) -> Counter[str]:
    """Tensor methods and torch functions that frames of ampscope called directly, per step."""
    calls: Counter[str] = Counter()

    def spy(frame: FrameType, event: str, arg: Any) -> None:
        if event != "c_call" or not frame.f_code.co_filename.startswith(OURS):
            return
        owner = getattr(arg, "__self__", None)
        if isinstance(owner, torch.Tensor) or "VariableFunctions" in arg.__qualname__:
            calls[arg.__name__] += 1

    sys.setprofile(spy)
    try:
        for _ in range(OFF_STEPS):
            step()
    finally:
        sys.setprofile(None)
    return Counter({name: round(count / OFF_STEPS) for name, count in calls.items()})


def off_step_calls(tmp_path: Path, layers: int, amp: bool) -> Counter[str]:
    with ampscope.Recorder(tmp_path / f"{layers}-{amp}", level="pulse", every=1, strict=True):
        step = loop(deep(layers), amp)
        step()
        step()
        return tensor_calls(step)


@pytest.mark.parametrize("amp", [False, True])
def test_an_off_step_reads_a_handful_of_scalars_whatever_the_size_of_the_model(
    tmp_path: Path, amp: bool
) -> None:
    for calls in (off_step_calls(tmp_path, 2, amp), off_step_calls(tmp_path, 200, amp)):
        work = Counter({name: n for name, n in calls.items() if name in READS})
        assert 1 <= work["sum"] <= 1 + BLOCKS, "float32 sums of the root output and of some blocks"
        assert work["item"] <= 6 + BLOCKS, "these, loss, norm, scale, growth tracker"
        assert work["tolist"] <= 1, "the gradient that backward begins with"
        assert set(work) <= {"sum", "item", "detach", "tolist"}


def test_histograms_and_snapshots_belong_to_sampled_steps(tmp_path: Path) -> None:
    with ampscope.Recorder(tmp_path / "off", level="pulse", strict=True):
        step = loop(deep(2), True)
        step()
        off = tensor_calls(step)
    with ampscope.Recorder(tmp_path / "on", level="range", every=1, strict=True):
        step = loop(deep(2), True)
        step()
        on = tensor_calls(step)
    assert sum(off.values()) < sum(on.values()) / 3
    assert "clone" not in off


def entered_per_step(tmp_path: Path, layers: int) -> Counter[str]:
    """How often each function of the recorder is entered on one off-step."""
    entered: Counter[str] = Counter()

    def spy(frame: FrameType, event: str, arg: Any) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(os.path.join(OURS, "hooks")):
            entered[f"{os.path.basename(path)}:{frame.f_code.co_name}"] += 1

    with ampscope.Recorder(tmp_path / f"entered-{layers}", level="pulse", strict=True):
        step = loop(deep(layers), False)
        step()
        step()
        sys.setprofile(spy)
        try:
            step()
        finally:
            sys.setprofile(None)
    return entered


def test_module_hooks_return_at_once_off_samples(tmp_path: Path) -> None:
    small, large = entered_per_step(tmp_path, 20), entered_per_step(tmp_path, 100)
    assert large["modules.py:_pre"] == large["modules.py:_post"] == 101
    growing = {name for name in large if large[name] > small[name] + 3 * BLOCKS}
    # The generator is the one that the clip function reads instead of the user's.
    assert growing <= {
        "modules.py:_pre",
        "modules.py:_post",
        "session.py:modules",
        "quiet.py:is_quiet",
        "api_calls.py:<genexpr>",
    }


def test_a_counted_step_reads_the_loss_and_the_scale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "PULSES", 0.0)
    monkeypatch.setattr(budget, "COUNTS", 100.0)
    for layers in (2, 200):
        with ampscope.Recorder(tmp_path / f"counted-{layers}", strict=True):
            step = loop(deep(layers), True)
            session = install.current()
            assert session is not None
            session.budget.charge("pulse", 10.0)  # neither pulses nor samples are left
            for _ in range(40):
                step()
            assert session.segment.level == "count"
            calls = tensor_calls(step)
        assert {name: n for name, n in calls.items() if name in READS} == {"item": 3}, (
            "loss, scale, growth tracker"
        )
