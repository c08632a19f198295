from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from ampscope.hooks.postmortem import op_name
from ampscope.hooks.quiet import quiet
from ampscope.hooks.replay import replay

X = torch.arange(1.0, 13.0).reshape(3, 4)

FORMULAS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "add": lambda x: torch.add(x, x * 2, alpha=3),
    "sub": lambda x: x * 3 - x,
    "mul": lambda x: x * 3.0,
    "product": lambda x: x * (x + x),
    "div": lambda x: x / (x * 7),
    "pow": lambda x: x**3,
    "log": torch.log,
    "log1p": torch.log1p,
    "sum": lambda x: x.sum(),
    "sum over rows": lambda x: x.sum(-1, keepdim=True),
    "mean": lambda x: x.mean((0, 1)),
    "clamp": lambda x: x.clamp(2.0, 5.0),
    "clamp_min": lambda x: x.clamp_min(2.0),
    "mm": lambda x: x @ x.t(),
    "bmm": lambda x: torch.bmm(x[None], x.t()[None]),
    "transpose": lambda x: x.transpose(0, -1),
    "view": lambda x: x.view(2, 6),
    "expand": lambda x: x[None].expand(2, 3, 4),
    "index": lambda x: x[torch.tensor([2, 0])],
    "select": lambda x: x[-1],
    "slice": lambda x: x[:, 1:4:2],
    "where": lambda x: torch.where(x > 3, x, x * 2),
    "cat": lambda x: torch.cat([x, x * 2], -1),
    "neg": torch.neg,
    "abs": torch.abs,
    "mse": lambda x: torch.nn.functional.mse_loss(x, torch.ones(3, 4)),
    "cast": lambda x: x.half(),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_the_result_is_that_of_the_op(name: str) -> None:
    leaf = X.clone().requires_grad_()
    out = FORMULAS[name](leaf * 1.0)
    node = out.grad_fn
    assert node is not None
    saved = {a.removeprefix("_saved_"): getattr(node, a) for a in dir(node) if a.startswith("_saved_")}
    inputs = [_value(fn, leaf) for fn, _ in node.next_functions]
    described = (str(out.dtype).removeprefix("torch."), "x".join(map(str, out.shape)))
    with quiet():
        found = replay(op_name(node), saved, inputs, described)

    assert found is not None, op_name(node)
    assert torch.equal(found, out.detach())


def _value(node: object, leaf: torch.Tensor) -> torch.Tensor | None:
    """The inputs of these formulas are x, 2x, 3x, 7x or views of x: computed here from the node that made them."""
    name = type(node).__name__
    if name == "MulBackward0":
        factor = getattr(node, "_saved_other", None)
        return leaf.detach() * (1.0 if factor is None else float(factor))
    if name == "AddBackward0":
        return leaf.detach() * 2
    if name == "UnsqueezeBackward0":
        return leaf.detach()[None]
    if name == "TBackward0":
        return leaf.detach().t()
    return None


def test_addmm_with_its_bias_in_half_and_in_float32() -> None:
    layer = nn.Linear(4, 2).half()
    out = layer(torch.full((3, 4), 200.0, dtype=torch.float16).requires_grad_())
    node = out.grad_fn
    assert node is not None
    saved = {a.removeprefix("_saved_"): getattr(node, a) for a in dir(node) if a.startswith("_saved_")}
    inputs = [layer.bias.detach(), None, layer.weight.detach().t()]
    with quiet():
        half = replay("aten::addmm", saved, inputs, ("float16", "3x2"))
        wide = replay("aten::addmm", saved, inputs, ("float16", "3x2"), wide=True)

    assert half is not None
    assert torch.allclose(half.float(), out.detach().float(), rtol=1e-2)
    assert wide is not None
    assert wide.dtype is torch.float32


def test_what_is_not_known_is_none() -> None:
    with quiet():
        assert replay("aten::sort", {}, [X], ("float32", "3x4")) is None
        assert replay("aten::add", {"alpha": 1}, [X, None], ("float32", "3x4")) is None
        assert replay("aten::sum", {}, [None], ("float32", "")) is None
