from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ampscope.diagnose.advice import autocast_policy, bf16_change, module_change, or_bf16
from ampscope.diagnose.signals import Signals
from ampscope.trace.reader import open_trace
from tests.diagnose.handmade import call, key, write

FP16 = {"calls": [call(0, "autocast.enter", dtype="float16", enabled=True)]}


@pytest.mark.parametrize("native", [True, False])
def test_bf16_is_advised_only_where_it_is_native(tmp_path: Path, native: bool) -> None:
    with open_trace(write(tmp_path, FP16, bf16_native=native)) as trace:
        s = Signals(trace)
        assert ("bfloat16" in or_bf16(s, "Do this")) is native
        assert bool(bf16_change(s)) is native
        assert bool(module_change(s, None).set) is native
        assert module_change(s, "blocks.2").set == {"module.fp32": "blocks.2"}


@pytest.mark.parametrize(
    "entered",
    [None, {"dtype": "bfloat16", "enabled": True}, {"dtype": "float16", "enabled": False}],
)
def test_no_override_of_an_autocast_that_does_not_choose_fp16(
    tmp_path: Path, entered: dict[str, Any] | None
) -> None:
    rows = {} if entered is None else {"calls": [call(0, "autocast.enter", **entered)]}
    with open_trace(write(tmp_path, rows, bf16_native=True)) as trace:
        s = Signals(trace)
        assert bf16_change(s) == {}
        assert "autocast" not in or_bf16(s, "Do this")


def test_the_autocast_policy_of_the_device_is_named(tmp_path: Path) -> None:
    gpu = {"params": [{**key(0), "name": "w", "device": "cuda"}]}
    with open_trace(write(tmp_path / "a", {})) as cpu, open_trace(write(tmp_path / "b", gpu)) as cuda:
        assert "CPU autocast leaves sum in half" in autocast_policy(Signals(cpu), "sum")
        assert "CPU" not in autocast_policy(Signals(cuda), "sum")
