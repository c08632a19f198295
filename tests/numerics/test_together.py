"""Small tensors that are counted together: the same answers as one by one, whatever their neighbours hold."""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ampscope.numerics.aside import MOST as MIDDLE
from ampscope.numerics.histogram import ExponentHistogram, exponent_histogram
from ampscope.numerics.rows import StatsRows
from ampscope.numerics.together import FEW, MOST, ROOM, Together

Check = Callable[[ExponentHistogram, NDArray[np.float64]], None]

SPECIAL = [
    0.0, -0.0, math.inf, -math.inf, math.nan, 65519.0, 65520.0, -65536.0, 3.4028234663852886e38, -1e38,
    1.1754943508222875e-38, 1.1754942106924411e-38, -1.401298464324817e-45, 2.0**-24, 6e-5, 1.0, -1.5,
]  # fmt: skip
VALUES = st.floats(width=32) | st.sampled_from(SPECIAL)
DTYPES = st.sampled_from([torch.float32, torch.float16, torch.bfloat16])
COUNTERS = ("numel", "zeros", "nan", "posinf", "neginf", "ge_65520", "amax", "amin_nonzero", "dtype")


def read(tensors: list[torch.Tensor]) -> list[ExponentHistogram]:
    rows = StatsRows("cpu", len(tensors))
    assert rows.read_many((x, i) for i, x in enumerate(tensors)) == len(tensors)
    done = rows.drain().result()
    assert [tag for tag, _ in done] == list(range(len(tensors)))
    return [found for _, found in done]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.lists(VALUES, max_size=9), DTYPES), min_size=1, max_size=9))
def test_any_values_are_counted_as_alone(check: Check, drawn: list[tuple[list[float], torch.dtype]]) -> None:
    tensors = [torch.tensor(values, dtype=torch.float64).to(dtype) for values, dtype in drawn]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        together = read(tensors)
    for x, found in zip(tensors, together, strict=True):
        check(found, x.double().numpy())
        alone = exponent_histogram(x)
        assert np.array_equal(found.counts, alone.counts)
        assert [getattr(found, name) for name in COUNTERS] == [getattr(alone, name) for name in COUNTERS]


def test_more_than_there_is_room_for(check: Check) -> None:
    generator = torch.Generator().manual_seed(0)
    sizes = [1, FEW - 1, FEW, FEW + 1, 3] * (2 * ROOM // (3 * FEW))
    assert sum(n for n in sizes if n <= FEW) > ROOM
    tensors = [torch.randn(n, generator=generator) for n in sizes]
    for x, found in zip(tensors, read(tensors), strict=True):
        check(found, x.double().numpy())


def test_more_tensors_than_wait_at_once(check: Check) -> None:
    tensors = [torch.full((1 + i % 3,), 2.0 ** (i % 100)) for i in range(2 * MOST + 1)]
    # Read alone while the next one finds no room.
    tensors[1] = torch.tensor([math.nan, -3.0, math.inf])
    for x, found in zip(tensors, read(tensors), strict=True):
        check(found, x.double().numpy())


def test_shapes_and_strides(check: Check) -> None:
    x = torch.randn(20, 30, generator=torch.Generator().manual_seed(0))
    views = [
        x, x.t(), x[:, ::3], x[None].expand(2, -1, -1), x[0, 0], x.view(5, 4, 30).permute(2, 0, 1),
        x.view(-1)[:99].unfold(0, 9, 2), torch.view_as_complex(x.view(-1, 2)).conj().imag,
    ]  # fmt: skip
    for view, found in zip(views, read(views), strict=True):
        check(found, view.double().resolve_neg().contiguous().numpy())


@pytest.mark.parametrize(
    "x",
    [
        torch.ones(MIDDLE + 1),
        torch.empty(0),
        torch.ones(3, dtype=torch.float64),
        torch.ones(3, dtype=torch.complex64).conj(),
        torch.ones(3).to(torch.float8_e5m2),
        torch.ones(3).to_sparse(),
    ],
    ids=["large", "empty", "float64", "conjugate", "float8", "sparse"],
)
def test_others_are_read_alone(x: torch.Tensor) -> None:
    assert Together().take(x) is None
    (found,) = read([x])
    assert found == exponent_histogram(x)


def test_complex_elements_count_as_two(check: Check) -> None:
    x = torch.tensor([1 + 2j, complex(0, math.inf), complex(-3e5, -0.0)], dtype=torch.complex64)
    (found,) = read([x])
    assert found.dtype == "complex64"
    check(found, torch.view_as_real(x).double().numpy())


def test_tensors_without_values_are_refused() -> None:
    with pytest.raises(ValueError, match="meta or fake tensor has no values"):
        Together().take(torch.empty(3, device="meta"))


def test_a_failed_read_leaves_the_others_alone(check: Check) -> None:
    rows = StatsRows("cpu", 9)
    rows.read(torch.full((2,), 2.0), "first")
    with pytest.raises(ValueError, match="no values"):
        rows.read(torch.empty(3, device="meta"), "none")
    rows.read(torch.full((3,), 3.0), "last")
    (first, a), (last, b) = rows.drain().result()
    assert (first, last) == ("first", "last")
    check(a, np.full(2, 2.0))
    check(b, np.full(3, 3.0))


def test_flushed_denormals_do_not_reach_the_counts() -> None:
    x = [torch.tensor([1e-40, -1e-45, 1.0, 0.0]), torch.tensor([1e-45]), torch.tensor([0.0])]
    reference = read(x)
    if not torch.set_flush_denormal(True):
        pytest.skip("this CPU cannot flush denormals")
    try:
        found = read(x)
    finally:
        torch.set_flush_denormal(False)
    assert [(f.zeros, f.amin_nonzero, f.amax) for f in found] == [
        (r.zeros, r.amin_nonzero, r.amax) for r in reference
    ]
    assert all(np.array_equal(f.counts, r.counts) for f, r in zip(found, reference, strict=True))
    assert [r.zeros for r in reference] == [1, 0, 1]


def test_threads_may_read_at_once() -> None:
    together, n = Together(), 400
    found: dict[int, list[object]] = {}

    def reader(k: int) -> None:
        found[k] = [together.take(torch.full((100 + k,), 2.0**k)) for _ in range(n)]

    threads = [threading.Thread(target=reader, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    together.count()
    for k in range(3):
        for waiting in found[k]:
            tally = waiting.tally  # type: ignore[attr-defined]
            assert (tally.numel, tally.counts[127 + k], tally.sum) == (100 + k, 100 + k, (100 + k) * 2.0**k)


def test_in_any_ambient_state() -> None:
    x = torch.tensor([1.0, -3.0, 0.0], requires_grad=True)
    with torch.device("meta"), torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        (found,) = read([x])
    assert found == exponent_histogram(x)
    assert read([x]) == [found]
