from __future__ import annotations

import threading

import torch
from torch import nn

from ampscope.hooks.here import Here


def test_what_runs_decides_the_phase() -> None:
    here = Here()
    assert here.phase(between=False) == "other"
    assert here.phase(between=True) == "forward"
    with torch.autocast("cpu", torch.bfloat16):
        assert here.phase(between=False) == "forward"
    here.in_optimizer = 1
    assert here.phase(between=True) == "optimizer"
    here.in_backward = 1  # a closure
    assert here.phase(between=True) == "backward"
    here.modules.append(nn.Linear(1, 1))
    assert here.phase(between=True) == "forward"


def test_within_the_engine_a_module_is_a_recompute() -> None:
    here = Here()
    seen: list[str] = []

    def hook(gradient: torch.Tensor) -> None:
        seen.append(here.phase(between=False))
        here.modules.append(nn.Linear(1, 1))
        seen.append(here.phase(between=False))

    x = torch.ones(1, requires_grad=True)
    y = x * 2
    y.register_hook(hook)
    y.backward()
    assert seen == ["backward", "recompute"]


def test_each_thread_has_its_own() -> None:
    here = Here()
    here.in_optimizer = 1
    seen: list[str] = []
    thread = threading.Thread(target=lambda: seen.append(here.phase(between=False)))
    thread.start()
    thread.join()
    assert seen == ["other"]
    assert here.phase(between=False) == "optimizer"
