"""The float64 NumPy oracle for exponent histograms, written independently of the code under test."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from ampscope.numerics.histogram import ExponentHistogram

Check = Callable[[ExponentHistogram, NDArray[np.float64]], None]


def _check(found: ExponentHistogram, values: NDArray[np.float64]) -> None:
    x = np.asarray(values, np.float64).reshape(-1)
    finite = x[np.isfinite(x)]
    magnitude = np.abs(finite[finite != 0])
    counts: dict[int, int] = {}
    for m, n in zip(*np.unique(magnitude, return_counts=True), strict=True):
        e = max(-127, min(128, math.frexp(m)[1] - 1))
        counts[e] = counts.get(e, 0) + int(n)
    assert {e: int(found.counts[e + 127]) for e in range(-127, 129) if found.counts[e + 127]} == counts
    assert found.numel == x.size
    assert found.zeros == np.count_nonzero(finite == 0)
    assert found.nan == np.count_nonzero(np.isnan(x))
    assert found.posinf == np.count_nonzero(x == np.inf)
    assert found.neginf == np.count_nonzero(x == -np.inf)
    assert found.ge_65520 == np.count_nonzero(np.abs(finite) >= 65520)
    assert found.amax == (np.abs(finite).max() if finite.size else None)
    assert found.amin_nonzero == (magnitude.min() if magnitude.size else None)
    with np.errstate(over="ignore", invalid="ignore"):
        squares = float((finite * finite).sum())
        total = float(np.abs(finite).sum())
        signed = float(finite.sum())
    assert found.sumabs == pytest.approx(total, rel=1e-13, abs=0)
    if np.isfinite(total):  # else the order of addition decides whether the sum overflows on its way
        assert found.sum == pytest.approx(signed, rel=1e-13, abs=1e-13 * total + 1e-300)
    assert found.sumsq == pytest.approx(squares, rel=1e-13, abs=1e-300)


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """Chunks are small: a second thread only waits for cores that other test processes use."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def check() -> Check:
    """check(histogram, values): every field of the histogram against float64 values."""
    return _check
