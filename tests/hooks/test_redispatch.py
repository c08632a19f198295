from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ampscope.hooks.census import Census
from ampscope.hooks.redispatch import redispatch
from tests.support.opview import View

HALF = torch.bfloat16


def both(function: Callable[[], Any]) -> tuple[Any, Any]:
    """Results without and with a census."""
    torch.manual_seed(0)
    plain = function()
    torch.manual_seed(0)
    census = Census(View())
    assert census.start()
    try:
        observed = function()
    finally:
        census.stop()
    assert census.failure is None, census.failure
    return plain, observed


@torch.library.custom_op("ampscope_tests::project", mutates_args=())
def project(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x @ w).float()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_body_of_a_custom_op_runs_under_the_autocast_of_its_caller(dtype: torch.dtype) -> None:
    x, w = torch.randn(5, 7), torch.randn(7, 3)

    def run() -> torch.Tensor:
        with torch.autocast("cpu", dtype=dtype):
            out: torch.Tensor = project(x, w)
        return out

    plain, observed = both(run)
    assert torch.equal(plain, observed)
    assert not torch.equal(plain, x @ w), "autocast reaches the body"
    assert not torch.is_autocast_enabled("cpu")


def test_a_fused_transformer_layer_runs_under_autocast() -> None:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    x = torch.randn(2, 5, 16)

    def run() -> torch.Tensor:
        with torch.no_grad(), torch.autocast("cpu", dtype=HALF):
            out: torch.Tensor = layer(x)
        return out

    plain, observed = both(run)
    assert plain.dtype == observed.dtype
    assert torch.equal(plain, observed)


@pytest.mark.parametrize(
    "function",
    [
        lambda: F.bilinear(torch.randn(2, 3), torch.randn(2, 4), torch.randn(5, 3, 4)),
        lambda: torch.cdist(torch.randn(30, 3), torch.randn(30, 3)),
        lambda: torch.pinverse(torch.randn(4, 3)),
        lambda: torch.einsum("bi,bj->ij", torch.randn(2, 3), torch.randn(2, 4)),
        lambda: nn.MultiheadAttention(8, 2)(*[torch.randn(3, 2, 8)] * 3)[0],
        lambda: torch.logsumexp(torch.randn(4, 9), -1),
        lambda: nn.LSTM(4, 8)(torch.randn(3, 2, 4))[0],
    ],
)
def test_ops_made_of_others_give_the_same_under_autocast(function: Callable[[], torch.Tensor]) -> None:
    def run() -> torch.Tensor:
        with torch.autocast("cpu", dtype=HALF):
            return function()

    plain, observed = both(run)
    assert plain.dtype == observed.dtype
    assert torch.equal(plain, observed)


def test_autocast_is_excluded_again_after_an_exception() -> None:
    excluded = torch._C._dispatch_tls_is_dispatch_key_excluded
    key = torch._C.DispatchKey.AutocastCPU
    states: list[bool] = []

    @torch.library.custom_op("ampscope_tests::broken", mutates_args=())
    def broken(x: torch.Tensor) -> torch.Tensor:
        states.append(excluded(key))
        raise LookupError("in the op")

    census = Census(View())
    census.start()
    with torch.autocast("cpu", dtype=HALF):
        with pytest.raises(LookupError, match="in the op"):
            broken(torch.ones(1))
        states.append(excluded(key))
        product = torch.ones(2, 2) @ torch.ones(2, 2)
    rows = census.stop()
    assert states == [False, False]
    assert product.dtype is HALF
    assert [row["error"] for row in rows if row["op"].endswith("broken")] == ["LookupError"]


def test_version_counters_of_foreach_ops() -> None:
    def run() -> list[int]:
        x = [torch.ones(2), torch.ones(3)]
        torch._foreach_add_(x, 1.0)
        torch._foreach_zero_(x)
        with torch.inference_mode():
            torch._foreach_add_([torch.ones(1)], 1.0)
        return [t._version for t in x]

    plain, observed = both(run)
    assert plain == observed == [2, 2]


def test_numbers_for_tensors() -> None:
    aten = torch.ops.aten
    assert redispatch(aten.add.Tensor, (torch.ones(2), 1), {}).tolist() == [2.0, 2.0]
    assert redispatch(aten.equal.default, (torch.tensor(2), 2), {}) is True
    assert redispatch(aten.view.default, (3.0, [1]), {}).tolist() == [3.0]
    with pytest.raises(RuntimeError, match="Expected a value of type 'Tensor'"):
        redispatch(aten.view.default, ("text", [1]), {})


class Asked(torch.Tensor):
    """Counts the torch functions that it is asked about."""

    count = 0

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        Asked.count += 1
        return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]


def test_a_subclass_is_asked_of_the_functions_that_python_calls_and_of_no_op() -> None:
    w = torch.randn(4, 2, requires_grad=True)

    def run() -> torch.Tensor:
        Asked.count = 0
        (torch.randn(3, 4).as_subclass(Asked) @ w).tanh().sum().backward()
        return torch.tensor(Asked.count)

    plain, observed = both(run)
    assert int(plain) == int(observed) > 0
