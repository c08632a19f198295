from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from ampscope.hooks.census import Census
from tests.support.opview import Log, View, watching

HALF = torch.float16


def labels(function: Callable[[], Any], model: torch.nn.Module | None = None) -> list[str]:
    """`in>out:label` of every cast of `function`."""
    with watching(model) as view:
        census = Census(view)
        assert census.start()
        try:
            function()
        finally:
            rows = census.stop()
    assert census.failure is None, census.failure
    short = {"float16": "h", "bfloat16": "b", "float32": "f", "int64": "i"}
    return [
        f"{short[row['in_dtypes'][-1]]}>{short[row['out_dtypes'][0]]}:{row['cast']}"
        for row in rows
        if row["cast"] is not None
    ]


def autocast() -> torch.autocast:
    return torch.autocast("cpu", dtype=HALF)


def test_autocast_casts_the_arguments_of_a_linear() -> None:
    linear, x = torch.nn.Linear(4, 4), torch.ones(2, 4)

    def run() -> None:
        with autocast():
            linear(x)

    assert labels(run) == ["f>h:autocast"] * 3


def test_a_cast_written_under_autocast_is_the_users() -> None:
    x, w = torch.ones(2, 4), torch.ones(4, 4)

    def run() -> None:
        with autocast():
            h = x.half()
            torch.relu(h)
            torch.mm(h, w)
            h.float().to(torch.bfloat16)

    assert labels(run) == ["f>h:user", "f>h:autocast", "h>f:user", "f>b:user"]


def test_casts_written_in_a_loop_and_as_an_argument() -> None:
    x, w = torch.ones(4, 4), torch.ones(4, 4, dtype=HALF)

    def run() -> None:
        with autocast():
            y = x
            for dtype in (HALF, torch.float32, HALF):
                y = y.to(dtype)
            torch.mm(x.half(), w)

    assert labels(run) == ["f>h:user", "h>f:user", "f>h:user", "f>h:user"]


def test_autocast_to_float32_and_widest() -> None:
    x = torch.ones(4, 4, dtype=HALF)

    def run() -> None:
        with autocast():
            F.mse_loss(x, x)
            torch.cat([x, x.float()])

    assert labels(run) == ["h>f:autocast", "h>f:autocast", "h>f:user", "h>f:autocast"]


def test_without_autocast_every_cast_is_the_users() -> None:
    assert labels(lambda: torch.ones(2).half().float() + torch.arange(2).half()) == [
        "f>h:user",
        "h>f:user",
        "i>h:user",
    ]


def test_copy_into_another_dtype_is_a_cast() -> None:
    target = torch.zeros(2, dtype=HALF)
    assert labels(lambda: target.copy_(torch.ones(2))) == ["f>h:user"]


def test_backward_of_a_cast_has_the_label_of_the_cast() -> None:
    linear, x = torch.nn.Linear(4, 4), torch.ones(2, 4, requires_grad=True)

    def run() -> None:
        with autocast():
            y = linear(x)
        y.float().sum().backward()

    assert labels(run) == ["f>h:autocast"] * 3 + ["h>f:user", "f>h:user"] + ["h>f:autocast"] * 3


def test_autograds_own_cast_is_a_promotion() -> None:
    half = torch.ones(2, dtype=HALF, requires_grad=True)
    wide = torch.ones(2)
    assert labels(lambda: (half * wide).sum().backward()) == ["f>h:promotion"]


def test_a_cast_in_a_custom_backward_is_the_users() -> None:
    class Half(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return grad.half().float()

    x = torch.ones(2, requires_grad=True)
    apply: Any = Half.apply
    assert labels(lambda: apply(x).sum().backward()) == ["f>h:user", "h>f:user"]


def test_custom_fwd_casts_for_autocast() -> None:
    class Cast(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)  # type: ignore[untyped-decorator]
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

    x = torch.ones(2, dtype=HALF)

    def run() -> None:
        with autocast():
            apply: Any = Cast.apply
            apply(x)

    assert labels(run) == ["h>f:autocast"]


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputed_casts_are_autocasts_too(reentrant: bool) -> None:
    linear, x = torch.nn.Linear(4, 4), torch.ones(2, 4, requires_grad=True)

    def run() -> None:
        with autocast():
            y = torch.utils.checkpoint.checkpoint(linear, x, use_reentrant=reentrant)
        y.sum().backward()

    found = labels(run, linear)
    assert set(found) == {"f>h:autocast", "h>f:autocast"}
    assert found.count("f>h:autocast") >= 5


def test_under_a_mode_of_the_user() -> None:
    x, w = torch.ones(2, 4), torch.ones(4, 4)

    def run() -> None:
        with Log(), autocast():
            torch.relu(x.half())
            torch.mm(x, w)

    assert labels(run) == ["f>h:user", "f>h:autocast", "f>h:autocast"]


def test_the_parameter_that_was_cast_is_named() -> None:
    linear = torch.nn.Linear(4, 4)
    model = torch.nn.Sequential(linear)
    with watching(model) as view:
        census = Census(view)
        census.start()
        with autocast():
            model(torch.ones(2, 4))
        linear.weight.detach().to(torch.bfloat16)
        rows = census.stop()
    sources = [row["cast_source"] for row in rows if row["cast"]]
    assert sources == ["0.bias", "0.weight", None, "0.weight"]


def test_a_view_of_no_model() -> None:
    assert View().module() is None
