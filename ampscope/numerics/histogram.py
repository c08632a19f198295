"""Exponent histogram and counters of any tensor, in one read: the front door of the package's statistics.

Pure: never writes to the tensor, draws no random number, keeps no reference, and does not depend on default
dtype or device.
"""

from __future__ import annotations

import torch

from .binades import HIST_BINS, HIST_MAX, HIST_MIN, ExponentHistogram
from .chunks import tally
from .ranges import RangeSummary, range_summary
from .rows import Pending, StatsRows, dtype_name, read_device

__all__ = [
    "HIST_BINS",
    "HIST_MAX",
    "HIST_MIN",
    "ExponentHistogram",
    "Pending",
    "RangeSummary",
    "StatsRows",
    "exponent_histogram",
    "range_summary",
]


def exponent_histogram(tensor: torch.Tensor) -> ExponentHistogram:
    """Statistics of every element of `tensor`, exact but for the rounding of the float64 sums.

    Any shape, strides, dtype and device; expanded dimensions are read once and counted in full. Sparse
    tensors give their stored values (coalesced), complex elements count as two, packed float4 bytes as two.
    float64 is binned by its own exponent, clamped to the first and last bin; integers beyond 2^53 round to
    float64. On a device other than the CPU this waits for the result: use `StatsRows` to avoid that.

    Error of sumsq and sumabs (relative) and of sum (relative to sumabs): below numel * 2^-53 at worst
    (Higham, Accuracy and Stability of Numerical Algorithms, section 4.2), a few 2^-53 in practice, a few thousand
    in a million elements that are all equal.
    Raises ValueError for tensors without data (meta, fake) and for dtypes that are not numbers (bits8).
    """
    if tensor.device.type in ("cpu", "meta", "mps"):
        return tally(tensor).freeze(dtype_name(tensor.dtype))
    return read_device(tensor)
