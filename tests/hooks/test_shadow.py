from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from ampscope.hooks import shadow
from ampscope.hooks.shadow import Shadow, compare, in_place, kind_of, recompute

aten = torch.ops.aten
HALF = torch.float16


def run(func: Any, *args: Any, ulp: bool = True, **kwargs: Any) -> Shadow:
    found = recompute(func, args, kwargs, func(*args, **kwargs), ulp=ulp)
    assert found is not None
    return found


def test_flushed_values_of_a_matmul_are_counted_exactly() -> None:
    a = torch.full((2, 4), 2.0**-14, dtype=HALF)
    b = torch.zeros(4, 3, dtype=HALF)
    b[:, 0] = 2.0**-14  # the product 4 * 2^-28 = 2^-26 is flushed
    b[:, 1] = 1.0
    found = run(aten.mm.default, a, b)
    assert (found.flushed, found.nonfinite, found.overflowed) == (2, 0, 0)
    assert found.amax == 2.0**-12


def test_overflow_that_float32_would_have_survived() -> None:
    a = torch.full((1, 8), 256.0, dtype=HALF)
    found = run(aten.mm.default, a, a.t())
    assert (found.overflowed, found.nonfinite, found.amax) == (1, 0, 8 * 65536.0)


def test_a_fault_that_float32_would_not_have_helped() -> None:
    found = run(aten.log.default, torch.tensor([0.0, 1.0], dtype=HALF))
    assert (found.nonfinite, found.overflowed) == (1, 0)


def test_cast_against_numpy() -> None:
    x = torch.randn(1000) * 1e-7
    found = run(aten._to_copy.default, x, dtype=HALF)
    exact = x.double().numpy()
    seen = x.numpy().astype(np.float16).astype(np.float64)
    assert found.flushed == int(((exact != 0) & (seen == 0)).sum()) > 100
    assert found.sqnr_db == pytest.approx(10 * math.log10((exact**2).sum() / ((exact - seen) ** 2).sum()))
    assert found.max_ulp is not None
    assert 0.4 < found.max_ulp <= 0.5


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_correct_rounding_is_within_half_an_ulp(dtype: torch.dtype) -> None:
    x = torch.linspace(0.01, 60.0, 3001).to(dtype)
    found = run(aten.mul.Tensor, x, x)
    assert found.max_ulp is not None
    assert 0.3 < found.max_ulp <= 0.5


def test_exact_results_have_infinite_quality_and_zeros_have_none() -> None:
    x = torch.ones(3, dtype=HALF)
    assert run(aten.add.Tensor, x, x).sqnr_db == math.inf
    found = run(aten.mul.Tensor, x, torch.zeros(3, dtype=HALF))
    assert found.sqnr_db is None
    assert found.amax == 0.0


@pytest.mark.parametrize(
    ("func", "args", "kwargs"),
    [
        (aten.addmm.default, ("m", "m", "m"), {}),
        (aten.bmm.default, ("b", "b"), {}),
        (aten.sum.dim_IntList, ("m", [1], True), {"dtype": HALF}),
        (aten.mean.default, ("m",), {}),
        (aten.cumsum.default, ("m", 0), {}),
        (aten.linalg_vector_norm.default, ("m",), {}),
        (aten._softmax.default, ("m", 1, False), {}),
        (aten._log_softmax.default, ("m", 1, False), {}),
        (aten._softmax_backward_data.default, ("m", "m", 1, HALF), {}),
        (aten.native_layer_norm.default, ("m", [4], None, None, 1e-5), {}),
        (aten.exp.default, ("m",), {}),
        (aten.pow.Tensor_Scalar, ("m", 3), {}),
        (aten.rsqrt.default, ("p",), {}),
        (aten.div.Tensor, ("m", "p"), {}),
        (aten.gelu_backward.default, ("m", "m"), {}),
        (aten.mse_loss.default, ("m", "p"), {}),
        (aten.nll_loss_forward.default, ("m", "t", None, 1, -100), {}),
        (aten.scatter_add.default, ("m", 0, "i", "m"), {}),
        (aten.cat.default, (["m", "p"],), {}),
    ],
)
def test_ops_have_a_reference_close_to_the_half_result(func: Any, args: Any, kwargs: Any) -> None:
    torch.manual_seed(0)
    tensors = {
        "m": torch.randn(4, 4).half(),
        "p": torch.rand(4, 4).half() + 0.5,
        "b": torch.randn(2, 3, 3).half(),
        "t": torch.tensor([0, 1, 2, 3]),
        "i": torch.zeros(4, 4, dtype=torch.int64),
    }

    def fill(a: Any) -> Any:
        if isinstance(a, list) and a and isinstance(a[0], str):
            return [tensors[x] for x in a]
        return tensors[a] if isinstance(a, str) else a

    real = tuple(fill(a) for a in args)
    found = recompute(func, real, kwargs, func(*real, **kwargs))
    assert found is not None
    assert found.nonfinite == 0
    assert found.sqnr_db is not None
    assert found.sqnr_db > 50.0


def test_convolution_and_its_backward() -> None:
    x, w = torch.randn(2, 3, 8, 8).half(), torch.randn(4, 3, 3, 3).half()
    tail = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    assert (run(aten.convolution.default, x, w, None, *tail).sqnr_db or 0.0) > 50.0
    grad = torch.randn(2, 4, 8, 8).half()
    found = run(aten.convolution_backward.default, grad, x, w, [4], *tail, [True, True, True])
    assert found.numel == x.numel() + w.numel() + 4


def test_attention_and_its_backward() -> None:
    q, k, v, grad = (torch.randn(1, 2, 5, 4).half() for _ in range(4))
    forward = aten._scaled_dot_product_flash_attention_for_cpu.default
    out, lse = forward(q, k, v, 0.0, True)
    assert (run(forward, q, k, v, 0.0, True).sqnr_db or 0.0) > 50.0
    backward = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    found = run(backward, grad, q, k, v, out, lse, 0.0, True)
    assert found.numel == 3 * q.numel()
    assert (found.sqnr_db or 0.0) > 50.0


def test_in_place_ops_are_recomputed_before_they_run() -> None:
    x = torch.tensor([300.0, 1.0], dtype=HALF)
    args = (x, x)
    assert in_place(aten.mul_.Tensor)
    assert recompute(aten.mul_.Tensor, args, {}, x) is None
    exact = shadow.reference(aten.mul_.Tensor, args, {})
    found = compare(exact, aten.mul_.Tensor(*args))
    assert found is not None
    assert (found.overflowed, found.amax) == (1, 90000.0)


@pytest.mark.parametrize(
    ("func", "kind"),
    [
        (aten.mm.default, "matmul"),
        (aten.sum.default, "reduction"),
        (aten.mul_.Tensor, "pointwise"),
        (aten._to_copy.default, "cast"),
        (aten.bernoulli.default, None),
        (aten.native_dropout.default, None),
        (aten.native_batch_norm.default, None),
        (aten.add.out, None),
        (aten.copy_.default, None),
        (torch.ops.higher_order.cond, None),
    ],
)
def test_what_is_recomputed(func: Any, kind: str | None) -> None:
    assert kind_of(func) == kind


def test_results_in_float32_are_left_alone() -> None:
    x = torch.ones(2)
    assert recompute(aten.mul.Tensor, (x, x), {}, x) is None


def test_an_op_without_a_float32_kernel_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(2, dtype=HALF)

    def missing(func: Any) -> Any:
        def call(*_: Any, **__: Any) -> Any:
            raise NotImplementedError("no kernel")

        return call

    monkeypatch.setattr(shadow, "_functional", missing)
    assert shadow.reference(aten.exp.default, (x,), {}) is None


def test_no_trace_in_random_state_autograd_or_arguments() -> None:
    torch.manual_seed(3)
    x = torch.randn(4, 4).half().requires_grad_()
    w = torch.randn(4, 4).half().requires_grad_()
    out = F.softmax(x @ w, -1)
    state = torch.get_rng_state()
    versions = x._version, w._version
    for func, args in ((aten.mm.default, (x, w)), (aten._softmax.default, (x, -1, False))):
        assert recompute(func, args, {}, out.detach()) is not None
    assert torch.equal(torch.get_rng_state(), state)
    assert (x._version, w._version) == versions
    assert x.grad is None
    assert torch.is_grad_enabled()


def test_under_autocast_the_reference_stays_in_float32() -> None:
    a = torch.full((1, 8), 256.0, dtype=HALF)
    with torch.autocast("cpu", dtype=HALF):
        found = run(aten.mm.default, a, a.t())
    assert found.amax == 8 * 65536.0


def test_expanded_and_mismatched() -> None:
    x = torch.ones(1, dtype=HALF).expand(5)
    assert run(aten.mul.Tensor, x, x).numel == 5
    assert compare(torch.ones(2), torch.ones(3, dtype=HALF)) is None
    assert compare(torch.ones(0), torch.ones(0, dtype=HALF)) == Shadow(0, None, 0, 0, 0, None)
