from __future__ import annotations

import pytest

from ampscope.diagnose.dtypes import Ending, in_custom_backward, mismatch


@pytest.mark.parametrize(
    "message",
    [
        "mat1 and mat2 must have the same dtype, but got Half and Float",
        "expected m1 and m2 to have the same dtype, but got: c10::Half != float",
        "expected scalar type Half but found Float",
        "Input type (c10::Half) and bias type (float) should be the same",
        "Index put requires the source and destination dtypes match, got Float for the destination and BFloat16 "
        "for the source.",
        "expected m1 and m2 to have the same dtype, but got: c10::BFloat16 != c10::Half",
        "Input type (torch.HalfTensor) and weight type (torch.FloatTensor) should be the same",
    ],
)
def test_two_dtypes_that_met(message: str) -> None:
    assert mismatch(message)


@pytest.mark.parametrize(
    "message",
    [
        None,
        "",
        "Attempting to unscale FP16 gradients.",
        "value cannot be converted to type c10::Half without overflow",
        "mat1 and mat2 shapes cannot be multiplied (4x8 and 16x2)",
        "expected scalar type Long but found Float",
        "\"addmm_impl_cpu_\" not implemented for 'Half'",
        "half of the float values are missing",
    ],
)
def test_other_errors(message: str | None) -> None:
    assert not mismatch(message)


def test_where_it_was_raised() -> None:
    inside = Ending(
        "RuntimeError", "m",
        'File "torch/autograd/graph.py", line 1\n run_backward(\n File "torch/autograd/function.py", line 3, in apply',
        "t.py", 1, "backward", 0, 0,
    )  # fmt: skip
    outside = Ending(
        "RuntimeError", "m", 'File "torch/autograd/function.py" in apply', "t.py", 1, "forward", 0, 0
    )
    engine = Ending("RuntimeError", "m", "run_backward(\nRuntimeError", "t.py", 1, None, 0, 0)
    assert in_custom_backward(inside)
    assert not in_custom_backward(outside)
    assert engine.in_backward
    assert not in_custom_backward(engine)
