from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from ampscope.hooks.deferred import DeferredScalars, unseen


def test_cpu_scalars_arrive_at_once_in_every_dtype() -> None:
    deferred = DeferredScalars()
    got: list[float] = []
    for value in (
        torch.tensor(1.5),
        torch.tensor([3]),
        torch.tensor(2.0, dtype=torch.bfloat16),
        torch.tensor(3 + 4j),
    ):
        deferred.put(value, got.append)
    deferred.put(torch.tensor(7.0, requires_grad=True), got.append)
    assert got == [1.5, 3.0, 2.0, 5.0, 7.0]
    assert deferred.poll()


def test_non_scalars_and_meta_tensors_are_left_alone() -> None:
    deferred = DeferredScalars()
    got: list[float] = []
    deferred.put(torch.ones(3), got.append)
    deferred.put(torch.ones((), device="meta"), got.append)
    assert got == []


def test_a_users_mode_does_not_see_the_read() -> None:
    ops: list[str] = []

    class Count(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            ops.append(str(func))
            return func(*args, **(kwargs or {}))

    deferred = DeferredScalars()
    got: list[float] = []
    value = torch.tensor(2.5)
    with FlopCounterMode(display=False), Count():  # type: ignore[no-untyped-call]
        assert not unseen(value)
        deferred.put(value, got.append)
    assert got == [2.5]
    assert ops == []
