from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from ampscope.hooks.dispatch import OpMode
from ampscope.hooks.flow import Flow, Verdict
from ampscope.hooks.oprow import OpRows, PendingOp
from ampscope.hooks.tensorfacts import Limits
from tests.support.opview import View

HALF = torch.float16
INF, NAN = math.inf, math.nan


class Follower(OpMode):
    """Feeds a `Flow` and keeps its verdicts."""

    def __init__(self, limits: Limits | None = None) -> None:
        super().__init__()
        self.ops = OpRows(View(), limits or Limits())
        self.flow = Flow()
        self.verdicts: list[tuple[str, str]] = []

    def before(self, func: Any, args: Any, kwargs: Any) -> PendingOp | None:
        return self.ops.begin(func, args, kwargs)

    def after(self, token: PendingOp, out: Any, seconds: float) -> None:
        self.ops.finish(token, out, seconds)
        verdict = self.flow.follow(token, self.ops.parameters)
        if verdict is not Verdict.NOTHING:
            self.verdicts.append((token.info.name.removeprefix("aten::"), verdict.name))

    def raised(self, token: PendingOp, error: BaseException) -> None:
        self.ops.failed(token, error)


def follow(function: Callable[[], Any], limits: Limits | None = None) -> Follower:
    mode = Follower(limits)
    mode.ops.start()
    assert mode.enter_stack()
    try:
        function()
    finally:
        mode.leave_stack()
    assert mode.failure is None, mode.failure
    return mode


def verdicts(function: Callable[[], Any]) -> list[tuple[str, str]]:
    return follow(function).verdicts


def test_the_first_op_is_the_source_and_what_follows_is_not() -> None:
    def run() -> None:
        x = torch.tensor([300.0, 1.0]).half()
        y = x * x
        (y - y + y.sqrt()).sum()

    assert verdicts(run) == [("mul", "TRANSITION")]


def test_two_sources() -> None:
    x = torch.tensor([300.0]).half()
    assert verdicts(lambda: (x * x, torch.log(x - x))) == [("mul", "TRANSITION"), ("log", "TRANSITION")]


@pytest.mark.parametrize(
    "mask",
    [
        lambda s, m: s.masked_fill(m, -INF),
        lambda s, m: torch.where(m, torch.full_like(s, -INF), s),
        lambda s, m: s + torch.zeros_like(s).masked_fill(m, -INF),
        lambda s, m: s + torch.full((3, 3), -INF).triu(1),
        lambda s, m: s.index_fill(1, torch.tensor([2]), -INF),
        lambda s, m: F.pad(s, (0, 1), value=-INF),
    ],
)
def test_a_mask_that_is_meant_is_no_source(mask: Callable[..., torch.Tensor]) -> None:
    scores, where = torch.ones(3, 3), torch.ones(3, 3).triu(1).bool()
    assert verdicts(lambda: mask(scores, where).softmax(-1).sum()) == []


def test_a_row_of_nothing_but_mask_is_a_source() -> None:
    scores, where = torch.ones(2, 2), torch.tensor([[True, True], [False, True]])
    assert verdicts(lambda: scores.masked_fill(where, -INF).softmax(-1)) == [("_softmax", "TRANSITION")]


def test_a_mask_constant_beyond_half_is_a_source() -> None:
    mask = torch.ones(2, dtype=HALF)
    assert verdicts(lambda: mask * -1e9) == [("mul", "TRANSITION")]
    assert verdicts(lambda: mask * 0.0 * -INF) == [("mul", "TRANSITION")], "0 * inf"


def test_a_mask_kept_in_a_buffer_is_no_entry_but_a_bad_batch_is() -> None:
    mask = torch.tensor([0.0, -INF])
    assert verdicts(lambda: (torch.ones(2) + mask).softmax(-1)) == []
    batch = torch.tensor([1.0, NAN])
    assert verdicts(lambda: ((batch * 2).sum(), batch * 3)) == [("mul", "ENTRY")]


def test_memory_that_was_never_written_is_no_source() -> None:
    def run() -> None:
        buffer = torch.empty(4)
        buffer.numpy()[:] = NAN
        part = torch.empty(2, 4)
        part.numpy()[:] = NAN
        (buffer + 1).sum()
        part[0] = 1.0
        part * 2

    assert verdicts(run) == []


def test_memory_that_was_written_is_judged_again() -> None:
    def run() -> None:
        buffer = torch.empty(2, dtype=HALF)
        buffer.copy_(torch.tensor([300.0, 1.0]))
        buffer * buffer

    assert verdicts(run) == [("mul", "TRANSITION")]


def test_a_value_that_was_repaired_is_clean() -> None:
    def run() -> None:
        x = torch.tensor([300.0]).half()
        y = x * x
        y.zero_()
        torch.log(y)

    assert verdicts(run) == [("mul", "TRANSITION"), ("log", "TRANSITION")]


def test_it_reaches_the_gradient() -> None:
    w = torch.tensor([0.0], requires_grad=True)

    def run() -> None:
        torch.sqrt(w).sum().backward()

    found = follow(run)
    assert found.verdicts == [("div", "TRANSITION")]
    assert found.flow.reached == {0: "gradient"}


def test_it_reaches_the_gradient_that_autograd_grad_returns() -> None:
    w = torch.tensor([0.0], requires_grad=True)

    def run() -> None:
        (grad,) = torch.autograd.grad(torch.sqrt(w).sum(), w)
        grad * 0.5

    assert follow(run).flow.reached == {0: "gradient"}


def test_what_is_thrown_away_reaches_nothing() -> None:
    w = torch.tensor([1.0], requires_grad=True)
    half = torch.tensor([300.0]).half()

    def run() -> None:
        bad = half * half
        torch.where(torch.isinf(bad), 1.0, bad)
        w.exp().sum().backward()

    found = follow(run)
    assert found.verdicts == [("mul", "TRANSITION")]
    assert found.flow.reached == {}


def test_it_reaches_a_weight() -> None:
    w = torch.nn.Parameter(torch.tensor([1.0]))

    def run() -> None:
        w.detach().clone()
        with torch.no_grad():
            (w + 0).sum()
            w.div_(0.0)

    assert follow(run).flow.reached == {0: "weight"}


def test_running_statistics_carry_it() -> None:
    bn = torch.nn.BatchNorm1d(2)
    half = torch.full((4, 2), 300.0).half()

    def run() -> None:
        bn((half * half).float())
        assert bn.running_var is not None
        (bn.running_var + 1.0).sum()

    assert verdicts(run) == [("mul", "TRANSITION")]


def test_a_tensor_that_was_too_large_to_read_accuses_nobody() -> None:
    x = torch.full((100,), INF)
    found = follow(lambda: x[:2] * 2 if x is None else (x * 2).sum(), Limits(elements=10))
    assert found.verdicts == []


def test_arrival_of_a_loss_is_told() -> None:
    found = follow(lambda: torch.log(torch.zeros(1)).sum())
    loss = max(found.flow._marks)
    found.flow.arrived(loss, "loss")
    assert found.flow.reached == {0: "loss"}
    found.flow.keep(set())
    assert not found.flow._marks
