from __future__ import annotations

import torch

from ampscope.hooks.flops import flops_of

aten = torch.ops.aten


def test_matmul_counts_multiplication_and_addition() -> None:
    a, b = torch.ones(3, 4), torch.ones(4, 5)
    assert flops_of(aten.mm.default, (a, b), {}, a @ b) == 2 * 3 * 4 * 5


def test_convolution() -> None:
    x, w = torch.ones(2, 3, 8, 8), torch.ones(4, 3, 3, 3)
    args = (x, w, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    out = aten.convolution.default(*args)
    assert flops_of(aten.convolution.default, args, {}, out) == 2 * out.numel() * 3 * 9


def test_composites_of_inference_mode() -> None:
    x, w = torch.ones(2, 7, 3), torch.ones(4, 3)
    out = torch.nn.functional.linear(x, w)
    assert flops_of(aten.linear.default, (x, w), {}, out) == 2 * 2 * 7 * 3 * 4


def test_other_ops_and_unknown_calls() -> None:
    x = torch.ones(2)
    assert flops_of(aten.add.Tensor, (x, x), {}, x) is None
    assert flops_of(aten.mm.default, ("not", "tensors"), {}, None) is None
