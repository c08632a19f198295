"""The sums of a histogram while its tensor is being read."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from .binades import HIST_BINS, ExponentHistogram


@dataclass
class Tally:
    """Mutable sums of the histogram while chunks come in."""

    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(HIST_BINS, np.int64))
    numel: int = 0
    zeros: int = 0
    nan: int = 0
    posinf: int = 0
    neginf: int = 0
    ge_65520: int = 0
    amax: float | None = None
    amin: float | None = None
    sum: float = 0.0
    sumsq: float = 0.0
    sumabs: float = 0.0

    def freeze(self, dtype: str) -> ExponentHistogram:
        return ExponentHistogram(
            self.counts, self.numel, self.zeros, self.nan, self.posinf, self.neginf, self.ge_65520,
            self.amax, self.amin, self.sum, self.sumsq, self.sumabs, dtype,
        )  # fmt: skip


class Waiting:
    """The place of a tensor that was copied to be counted later; `tally` is there once it has been."""

    __slots__ = ("dtype", "tally")

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.tally: Tally | None = None
