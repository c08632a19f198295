from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.autograd import profiler, profiler_legacy

from ampscope.hooks.dispatch import OpMode
from ampscope.hooks.yielding import profiler_runs, yield_to_profiler
from tests.support.opview import mode_stack


@pytest.fixture(autouse=True)
def _silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINETO_LOG_LEVEL", "99")


@pytest.mark.parametrize("start", [profiler.profile, profiler_legacy.profile, torch.profiler.profile])
def test_told_before_a_profiler_starts(start: Callable[[], Any]) -> None:
    seen: list[bool] = []

    def stop() -> None:
        seen.append(profiler_runs())
        release()

    release = yield_to_profiler(stop)
    with start():
        assert profiler_runs()
        torch.ones(1)
    assert seen == [False]
    assert not profiler_runs()


def test_the_classes_are_as_before_afterwards() -> None:
    before = dict(profiler.profile.__dict__), dict(profiler.emit_nvtx.__dict__)
    first, second = yield_to_profiler(lambda: None), yield_to_profiler(lambda: None)
    assert profiler.profile.__enter__ is not before[0]["__enter__"]
    first()
    first()
    assert profiler.profile.__enter__ is not before[0]["__enter__"], "the second still waits"
    second()
    assert (dict(profiler.profile.__dict__), dict(profiler.emit_nvtx.__dict__)) == before


def test_a_profile_that_begins_under_a_mode_shows_each_op_once() -> None:
    class Passive(OpMode):
        def before(self, func: Any, args: Any, kwargs: Any) -> None:
            return None

    mode = Passive()
    assert mode.enter_stack()
    with profiler.profile() as profile:
        torch.ones(2).neg()
    assert mode_stack() == []
    assert not mode.active
    counts = {event.key: event.count for event in profile.key_averages()}
    assert counts["aten::neg"] == 1
    mode.leave_stack()
