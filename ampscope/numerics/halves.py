"""Large float16 and bfloat16 tensors: statistics from the counts of their 65536 codes.

One `bincount` per chunk says everything; values come from a table, so nothing is rounded but the sums over its
2^15 magnitudes. That is half the work of the chunks that are read as float32, of which the float64 sums take a third.
"""

from __future__ import annotations

from functools import cache, reduce

import numpy as np
import torch
from numpy.typing import NDArray

from .binades import HIST_MIN
from .counters import Tally
from .scratch import loaded_halves

FEWEST = 1 << 18
"""Elements from which the table pays: it costs as much for one element as for a million. The sums over it round
2^15 times, so that fewer elements would also loosen the bound that `exponent_histogram` promises."""

_MAGNITUDES = 1 << 15


def in_codes(part: torch.Tensor) -> bool:
    """Whether `tally_halves` is to read this tensor. An expanded one is small behind its size."""
    if part.dtype not in (torch.float16, torch.bfloat16) or part.numel() < FEWEST:
        return False
    return part.device.type == "cpu" and not part.is_neg() and 0 not in part.stride()


class _Table:
    """The finite magnitudes of one dtype, by code."""

    def __init__(self, dtype: torch.dtype) -> None:
        mantissa = 10 if dtype is torch.float16 else 7
        self.inf = _MAGNITUDES - (1 << mantissa)
        """code of +inf; larger magnitudes are NaN."""
        code = np.arange(self.inf)
        exponent, fraction = code >> mantissa, code & (1 << mantissa) - 1
        bias = 15 if dtype is torch.float16 else 127
        self.values: NDArray[np.float64] = np.ldexp(
            (fraction + (np.minimum(exponent, 1) << mantissa)).astype(np.float64),
            np.maximum(exponent, 1) - bias - mantissa,
        )
        self.code_65520 = int(np.searchsorted(self.values, 65520.0))
        bins = np.maximum(np.frexp(self.values[1:])[1] - 1 - HIST_MIN, 0)
        self.starts = 1 + np.flatnonzero(np.diff(bins, prepend=-1))
        """first code of each bin, in order of the bins, of which the first is `lowest`."""
        self.lowest = int(bins[0])
        with torch.inference_mode(mode=False):
            self.powers = torch.from_numpy(np.array((self.values, self.values**2)))
            """float64[2, inf]: the magnitudes and their squares."""


_table = cache(_Table)


def tally_halves(part: torch.Tensor, t: Tally) -> None:
    """Add every element of a tensor of which `in_codes` holds."""
    chunks = loaded_halves(part)
    codes = reduce(np.add, (torch.bincount(chunk, minlength=2 * _MAGNITUDES).numpy() for chunk in chunks))
    table = _table(part.dtype)
    positive, negative = codes[:_MAGNITUDES], codes[_MAGNITUDES:]
    both, net, inf = positive + negative, positive - negative, table.inf
    finite = both[:inf]
    t.numel += part.numel()
    t.zeros += int(both[0])
    t.nan += int(both[inf + 1 :].sum())
    t.posinf += int(positive[inf])
    t.neginf += int(negative[inf])
    t.ge_65520 += int(finite[table.code_65520 :].sum())
    there = finite != 0
    if not there.any():
        return
    amax = float(table.values[inf - 1 - int(there[::-1].argmax())])
    t.amax = amax if t.amax is None else max(t.amax, amax)
    if amax > 0:
        amin = float(table.values[1 + int(there[1:].argmax())])
        t.amin = amin if t.amin is None else min(t.amin, amin)
        t.counts[table.lowest : table.lowest + len(table.starts)] += np.add.reduceat(finite, table.starts)
    # torch, not NumPy, whose product would use more threads than torch may.
    weights = torch.from_numpy(np.array((finite, net[:inf]), np.float64))
    (sumabs, total), (sumsq, _) = (table.powers @ weights.T).tolist()
    t.sum += total
    t.sumsq += sumsq
    t.sumabs += sumabs
