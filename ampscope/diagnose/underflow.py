"""How much of the fp16 gradients is lost below 2^-24, by op and module, and how much room there is above.

Observed where the census recomputed an op in float32 (`shadow_*` columns), else estimated from the pile-up of the
histograms at the bottom of the fp16 range. Never counts zeros as such: most zeros are no underflow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ampscope.diagnose.finding import Basis

FP16_LARGEST_LOG2 = math.log2(65504.0)
FP16_SMALLEST = -24
"""Exponent of the smallest subnormal of float16 (IEEE 754 binary16)."""

OPS_QUERY = (
    "SELECT o.rank, o.proc, o.step, o.segment, o.seq, o.op, o.module, o.file, o.line, o.out_zeros, o.out_amax, "
    "o.shadow_flushed, o.shadow_sqnr_db, s.scale, o.opt, list_product(list_transform("
    "string_split(o.out_shapes[1], 'x'), lambda n: CAST(n AS DOUBLE))) AS numel "
    "FROM ops o LEFT JOIN steps s ON s.rank = o.rank AND s.proc IS NOT DISTINCT FROM o.proc "
    "AND s.segment = o.segment WHERE o.phase = 'backward' AND list_contains(o.out_dtypes, 'float16') "
    "AND o.shadow_flushed IS NOT NULL AND o.out_shapes[1] <> '' ORDER BY o.rank, o.proc, o.segment, o.seq"
)


@dataclass(frozen=True)
class Loss:
    """What one module (or one line, outside modules) lost of its gradients in one sampled step.

    `flushed` of `elements` that are not zero in float32 became zero. `sqnr_db` is the worst signal to
    quantisation-noise ratio of its ops, None where it is not known: 73 dB is plain fp16 rounding.
    """

    step: int
    module: str | None
    op: str | None
    file: str | None
    line: int | None
    flushed: float
    elements: float
    sqnr_db: float | None

    @property
    def share(self) -> float:
        return self.flushed / self.elements if self.elements else 0.0


@dataclass(frozen=True)
class Sample:
    """All losses of one sampled step. `amax` is the largest fp16 gradient, as it stood with its scale, and
    `loudest` the module where it stood."""

    rank: int
    proc: int
    step: int
    segment: int
    opt: str | None
    scale: float | None
    amax: float
    loudest: str | None
    losses: tuple[Loss, ...]
    basis: Basis

    @property
    def elements(self) -> float:
        """fp16 gradient elements of the step that are not zero in float32."""
        return sum(x.elements for x in self.losses)

    @property
    def share(self) -> float:
        """Flushed share of them."""
        return sum(x.flushed for x in self.losses) / self.elements if self.elements else 0.0

    @property
    def worst(self) -> Loss | None:
        """The loss with the largest share."""
        return max(self.losses, key=lambda x: (x.share, x.flushed), default=None)

    @property
    def sqnr_db(self) -> float | None:
        """The worst of the step."""
        return min((x.sqnr_db for x in self.losses if x.sqnr_db is not None), default=None)

    @property
    def headroom(self) -> float | None:
        """Binades between the largest fp16 gradient and 65504; None when all gradients are zero."""
        return FP16_LARGEST_LOG2 - math.log2(self.amax) if self.amax > 0.0 else None


def from_ops(frame: pd.DataFrame) -> tuple[Sample, ...]:
    """Samples from a frame of `OPS_QUERY`, in order."""
    samples = []
    for _, rows in frame.groupby(["rank", "proc", "segment"], sort=True, dropna=False):
        places = [_text(m) or _text(n) or "" for m, n in zip(rows["module"], rows["line"], strict=True)]
        losses = tuple(_loss(group) for _, group in rows.assign(place=places).groupby("place", sort=True))
        samples.append(_sample(rows, rows["out_amax"], rows["module"], losses, "observed"))
    return tuple(samples)


def _sample(
    rows: pd.DataFrame, sizes: pd.Series[Any], names: pd.Series[Any], losses: tuple[Loss, ...], basis: Basis
) -> Sample:
    first = rows.iloc[0]
    known = sizes.astype(float).fillna(0.0).to_numpy()
    top = int(known.argmax())
    return Sample(
        rank=_whole(first["rank"]),
        proc=_whole(first["proc"]),
        step=_whole(first["step"]),
        segment=_whole(first["segment"]),
        opt=_text(first["opt"]),
        scale=_known(rows["scale"].max()),
        amax=float(known[top]),
        loudest=_text(names.iloc[top]),
        losses=losses,
        basis=basis,
    )


def _loss(rows: pd.DataFrame) -> Loss:
    flushed = rows["shadow_flushed"].astype(float)
    elements = rows["numel"].astype(float) - rows["out_zeros"].astype(float).fillna(0.0) + flushed
    first = rows.iloc[int(np.argmax((flushed / elements.clip(lower=1.0)).to_numpy()))]
    return Loss(
        step=int(first["step"]),
        module=_text(first["module"]),
        op=_text(first["op"]),
        file=_text(first["file"]),
        line=None if pd.isna(first["line"]) else int(first["line"]),
        flushed=float(flushed.sum()),
        elements=float(elements.sum()),
        sqnr_db=_known(rows["shadow_sqnr_db"].min()),
    )


def from_tensors(frame: pd.DataFrame) -> tuple[Sample, ...]:
    """Samples from rows of the table tensors (activation gradients and parameter gradients): estimated."""
    fits = frame["dtype"].eq("float16") & frame["role"].isin(["activation_grad", "grad"])
    rows = frame[fits & frame["numel"].notna()]
    columns = (rows[c].tolist() for c in ("step", "module", "zeros", "hist_lo", "hist"))
    losses = pd.Series(
        [_estimate(*cells) for cells in zip(*columns, strict=True)], index=rows.index, dtype=object
    )
    samples = []
    for _, group in rows.groupby(["rank", "proc", "segment"], sort=True, dropna=False):
        found = tuple(losses.loc[group.index])
        samples.append(_sample(group, group["amax"], group["module"], found, "estimated"))
    return tuple(samples)


def _estimate(step: int, module: Any, zeros: Any, hist_lo: Any, hist: Any) -> Loss:
    counts = hist if isinstance(hist, list | tuple | np.ndarray) else []
    nonzero = float(sum(int(c) for c in counts))
    flushed = min(flushed_tail(int(hist_lo), counts), float(zeros)) if len(counts) else 0.0
    return Loss(int(step), _text(module), None, None, None, flushed, nonzero + flushed, None)


def flushed_tail(hist_lo: int, counts: Sequence[int] | NDArray[np.int64]) -> float:
    """Estimated number of elements below the smallest fp16 subnormal, from the histogram of an fp16 tensor.

    The counts of the lowest binades 2^-24 and 2^-22 give a ratio r per binade; continued downwards they sum to
    c r / (1 - r) below the lowest. A ratio of 0.9 or more has no bottom in sight: ten times the lowest count.
    """
    at = {hist_lo + i: float(c) for i, c in enumerate(counts)}
    lowest, higher = at.get(FP16_SMALLEST, 0.0), at.get(FP16_SMALLEST + 2, 0.0)
    if lowest == 0.0:
        return 0.0
    # A subnormal binade holds fewer representable values the lower it lies, so only its count tells, not its
    # spread; two binades apart smooths that.
    ratio = math.sqrt(lowest / higher) if higher else math.inf
    return lowest * (ratio / (1.0 - ratio) if ratio < 0.9 else 10.0)


def typical(samples: Sequence[Sample], scale: float | None) -> Sample | None:
    """The sample with the median share among those taken within a factor of two of `scale` (all, without one;
    the last one, where none was): early steps at another scale and the end of training do not decide.

    Observed samples go before estimated ones, which cannot judge tensors that are all zero.
    """
    near = [x for x in samples if scale is None or x.scale is None or scale / 2 <= x.scale <= scale * 2]
    observed = [x for x in near if x.basis == "observed"]
    chosen = observed or [x for x in near if x.elements] or list(samples[-1:])
    ordered = sorted(chosen, key=lambda x: (x.share, x.rank, x.segment))
    return ordered[(len(ordered) - 1) // 2] if ordered else None


def within(samples: Sequence[Sample], opt: str, modules: frozenset[str]) -> tuple[Sample, ...]:
    """The samples cut down to what one optimizer lost: in modules that hold its parameters, and outside modules
    in the segments that it ended. Samples with nothing of it are left out."""
    cut = (
        replace(
            x, losses=tuple(y for y in x.losses if y.module in modules or (not y.module and x.opt == opt))
        )
        for x in samples
    )
    return tuple(x for x in cut if x.losses)


def _whole(value: Any) -> int:
    return 0 if pd.isna(value) else int(value)


def _known(value: Any) -> float | None:
    return None if pd.isna(value) else float(value)


def _text(value: Any) -> str | None:
    return None if pd.isna(value) else str(value)
