from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
import torch.utils.checkpoint
from torch import nn

from ampscope.hooks.attribution import Attribution, Origin
from ampscope.hooks.census import Census
from ampscope.hooks.oprow import Row
from tests.support.opview import watching


class Gate(torch.autograd.Function):
    """A custom Function with two inner ops in each direction."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        out: torch.Tensor = x * x.sigmoid()
        return out

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        out: torch.Tensor = grad * x.cos()
        return out


class Custom(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = Gate.apply(x)  # type: ignore[no-untyped-call]
        return out


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 8)
        self.act = nn.GELU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = x + self.act(self.fc(x)) * 0.5
        return out


class Net(nn.Module):
    """Ops of many kinds, each of which tells by its name which module it is in."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(4, 8, 3, padding=1)
        self.bn = nn.BatchNorm1d(8)
        self.pool = nn.AvgPool1d(2)
        self.block = Residual()
        self.custom = Custom()
        self.norm = nn.LayerNorm(8)
        self.drop = nn.Dropout(0.2)
        self.soft = nn.Softmax(-1)
        self.tanh = nn.Tanh()
        self.head = nn.Linear(8, 3, bias=False)
        self.mode = "plain"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.pool(self.bn(self.conv(x))).transpose(1, 2)
        if self.mode == "plain":
            h = self.block(h)
        else:
            h = torch.utils.checkpoint.checkpoint(self.block, h, use_reentrant=self.mode == "reentrant")
        h = self.drop(self.norm(self.custom(h)))
        out: torch.Tensor = self.head(self.tanh(self.soft(h)))
        return out


OWNERS = {
    "aten::convolution_backward": "conv",
    "aten::native_batch_norm_backward": "bn",
    "aten::avg_pool2d_backward": "pool",
    "aten::gelu_backward": "block.act",
    "aten::cos": "custom",
    "aten::native_layer_norm_backward": "norm",
    "aten::native_dropout_backward": "drop",
    "aten::_softmax_backward_data": "soft",
    "aten::tanh_backward": "tanh",
}


def census_of(net: Net, x: torch.Tensor) -> list[Row]:
    with watching(net) as view:
        census = Census(view)
        census.start()
        out = net(x)
        out.sum().backward()
        rows = census.stop()
    assert census.failure is None, census.failure
    return rows


@pytest.mark.parametrize("mode", ["plain", "reentrant", "non-reentrant"])
def test_every_backward_op_joins_its_module(mode: str) -> None:
    torch.manual_seed(0)
    net = Net()
    net.mode = mode
    rows = census_of(net, torch.randn(2, 4, 8))
    backward = [row for row in rows if row["phase"] == "backward"]
    found = {row["op"]: row["module"] for row in backward if row["op"] in OWNERS}
    assert found == {op: OWNERS[op] for op in found}
    assert found.keys() >= OWNERS.keys() - {"aten::native_dropout_backward"}
    matmuls = [row["module"] for row in backward if row["op"] in ("aten::mm", "aten::bmm")]
    assert set(matmuls) == {"head", "block.fc"}
    assert [row for row in backward if row["op"] == "aten::detach" and row["module"] is None] == []


@pytest.mark.parametrize("mode", ["reentrant", "non-reentrant"])
def test_recomputed_ops_have_the_module_that_runs_them(mode: str) -> None:
    net = Net()
    net.mode = mode
    rows = census_of(net, torch.randn(2, 4, 8))
    recomputed = {row["op"]: row["module"] for row in rows if row["phase"] == "recompute"}
    assert recomputed["aten::mm"] == "block.fc"
    # The other kind stops as soon as it has what backward needs.
    assert recomputed.get("aten::gelu", "block.act") == "block.act"
    assert ("aten::gelu" in recomputed) == (mode == "reentrant")


def test_backward_ops_have_the_line_of_the_forward_op() -> None:
    x = torch.ones(3, requires_grad=True)
    with watching() as view:
        census = Census(view)
        census.start()
        y = x.exp()
        line = y.grad_fn is not None and _line()
        z = y.sum()
        z.backward()
        rows = census.stop()
    product = [row for row in rows if row["phase"] == "backward" and row["op"] == "aten::mul"]
    assert [row["line"] for row in product] == [line - 1]


def _line() -> int:
    import sys

    return sys._getframe(1).f_lineno


def test_double_backward_goes_back_to_the_first_forward() -> None:
    class Square(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.tanh()

    net = Square()
    x = torch.ones(3, requires_grad=True)
    with watching(net) as view:
        census = Census(view)
        census.start()
        (grad,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
        grad.square().sum().backward()
        rows = census.stop()
    second = [row for row in rows if row["phase"] == "backward" and row["op"] == "aten::tanh_backward"]
    assert len(second) >= 2
    assert {row["module"] for row in second} == {"Square"}


def test_accumulation_is_filed_under_the_module_of_the_parameter() -> None:
    net = Net()
    rows = census_of(net, torch.randn(2, 4, 8))
    steals = [row["module"] for row in rows if row["phase"] == "backward" and row["op"] == "aten::detach"]
    assert {"head", "conv", "block.fc"} <= set(steals)


def test_nodes_made_before_the_start_are_unknown() -> None:
    attribution = Attribution()
    old = torch.ones(2, requires_grad=True).exp()
    attribution.start()
    assert attribution.forward_op(Origin("aten::neg", "m", None)) is False
    assert attribution.of(old.grad_fn) is None


def test_only_the_first_op_after_a_node_owns_it() -> None:
    attribution = Attribution()
    attribution.start()
    y = torch.ones(2, requires_grad=True).exp()
    assert attribution.forward_op(Origin("aten::exp", "first", None))
    assert not attribution.forward_op(Origin("aten::neg", "second", None))
    found = attribution.of(y.grad_fn)
    assert found is not None
    assert found.module == "first"


def test_numbers_of_two_threads_do_not_mix() -> None:
    attribution = Attribution()
    made: dict[str, Any] = {}

    def forward(name: str) -> None:
        attribution.start()
        y = torch.ones(2, requires_grad=True).exp()
        attribution.forward_op(Origin("aten::exp", name, None))
        made[name] = y.grad_fn
        found = attribution.of(y.grad_fn)
        made[name + " found"] = found.module if found is not None else None

    for name in ("a", "b"):
        thread = threading.Thread(target=forward, args=(name,))
        thread.start()
        thread.join()
    assert made["a"]._sequence_nr() == made["b"]._sequence_nr()
    assert (made["a found"], made["b found"]) == ("a", "b")
    from_engine = attribution.of(made["a"])
    assert from_engine is not None, "a thread of the engine has none of its own"
