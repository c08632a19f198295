from __future__ import annotations

import math

import pytest
import torch

from ampscope.hooks.sentinel import float32_sum


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_one_bad_element_shows(bad: float, dtype: torch.dtype) -> None:
    x = torch.zeros(1000, dtype=dtype)
    x[517] = bad
    total = float32_sum(x)
    assert total is not None
    assert not math.isfinite(total.item())


def test_a_half_tensor_is_summed_in_float32() -> None:
    total = float32_sum(torch.full((1000,), 1000.0, dtype=torch.float16, requires_grad=True))
    assert total is not None
    assert total.item() == 1e6
    assert not total.requires_grad


def test_a_tensor_without_values_has_no_sum() -> None:
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    assert float32_sum(nested) is None


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_a_strided_nested_tensor_is_summed_over_its_components() -> None:
    nested = torch.nested.nested_tensor([torch.ones(2), torch.full((3,), 2.0)], layout=torch.strided)
    total = float32_sum(nested)
    assert total is not None
    assert total.item() == 8.0
