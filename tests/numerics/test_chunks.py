"""The inner loop: what it costs in calls, and that chunk borders and multiplicities do not show."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch.utils._python_dispatch import TorchDispatchMode

from ampscope.numerics import chunks
from ampscope.numerics.chunks import _PAIRED, byte_counts, tally
from ampscope.numerics.histogram import ExponentHistogram
from ampscope.numerics.scratch import CHUNK, SMALL

Check = Callable[[ExponentHistogram, NDArray[np.float64]], None]


class Count(TorchDispatchMode):
    """Counts aten calls."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls.append(str(func))
        return func(*args, **(kwargs or {}))


def calls(x: torch.Tensor) -> list[str]:
    tally(x)  # buffers and views exist from here on
    count = Count()
    with count:
        tally(x)
    return count.calls


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.float8_e5m2], ids=str)
def test_calls_per_chunk_are_a_small_constant(dtype: torch.dtype) -> None:
    chunk = 2 * CHUNK if dtype is torch.bfloat16 else CHUNK
    per_size = [len(calls(torch.ones(n * chunk).to(dtype))) for n in (1, 2, 3, 5)]
    per_chunk = per_size[2] - per_size[1]
    assert per_size[3] - per_size[2] == 2 * per_chunk
    assert per_chunk <= 10
    assert per_size[0] <= 15


def test_small_tensors_cost_a_handful_of_calls() -> None:
    assert len(calls(torch.ones(64))) <= 5


def test_only_a_copy_reads_the_tensor() -> None:
    """Nothing but views and copy_ may touch the caller's memory: no write, no Tensor.numpy()."""
    x = torch.ones(3 * CHUNK)
    touching: list[str] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            inside = [
                a for a in args
                if isinstance(a, torch.Tensor) and a.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
            ]  # fmt: skip
            if inside:
                touching.append(func._schema.name)
            return func(*args, **(kwargs or {}))

    with Watch():  # type: ignore[no-untyped-call]
        tally(x)
    assert set(touching) <= {"aten::detach", "aten::view", "aten::split", "aten::copy_", "aten::slice"}


@pytest.mark.parametrize(
    "n", [1, SMALL - 1, SMALL, _PAIRED - 1, _PAIRED, _PAIRED + 1, CHUNK - 1, CHUNK, CHUNK + 1]
)
def test_sizes_around_every_border(check: Check, n: int) -> None:
    x = torch.randn(n, generator=torch.Generator().manual_seed(n))
    x[-1] = 0
    check(tally(x).freeze("float32"), x.double().numpy())
    check(tally(x.double() * 1e30).freeze("float64"), (x.double() * 1e30).numpy())


ENDS = [
    0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, 1e-45, -1.1754942e-38, 2.0**-126, 1.5, -2.0,
    3.4028234663852886e38, 2.0**128, -1e308,
]  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.lists(st.floats() | st.sampled_from(ENDS), min_size=1, max_size=40), st.sampled_from([32, 64]))
def test_pairs_are_counted_as_single_codes(check: Check, values: list[float], bits: int) -> None:
    x = torch.tensor(values, dtype=torch.float64).to(torch.float32 if bits == 32 else torch.float64)
    plain = tally(x)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "SMALL", 0)
        single = tally(x)
        patch.setattr(chunks, "_PAIRED", 1)
        paired = tally(x)
    check(paired.freeze(str(x.dtype)), x.double().numpy())
    assert np.array_equal(paired.counts, plain.counts)
    assert np.array_equal(single.counts, plain.counts)


@pytest.mark.parametrize("value", [0.0, 1e-45, 1.0, 2.0**127, math.inf])
@pytest.mark.parametrize("n", [_PAIRED, _PAIRED + 1])
def test_pairs_of_one_value(check: Check, n: int, value: float) -> None:
    x = torch.full((n,), value)
    check(tally(x).freeze("float32"), x.double().numpy())


def test_the_minimum_is_found_in_any_chunk(check: Check) -> None:
    for at in (0, CHUNK, 2 * CHUNK + 1):
        x = torch.ones(2 * CHUNK + 2)
        x[at] = 0.51
        x[(at + 1) % len(x)] = 0.5
        check(tally(x).freeze("float32"), x.double().numpy())


def test_chunks_that_are_all_bad_or_all_zero(check: Check) -> None:
    x = torch.full((3 * CHUNK,), torch.nan)
    x[CHUNK : 2 * CHUNK] = 0
    check(tally(x).freeze("float32"), x.double().numpy())
    x[-1] = -2
    check(tally(x).freeze("float32"), x.double().numpy())


def test_byte_counts_of_an_expanded_tensor() -> None:
    counts = byte_counts(torch.tensor([[3], [7]], dtype=torch.uint8).expand(2, 1000))
    assert (counts[3], counts[7], counts.sum()) == (1000, 1000, 2000)
