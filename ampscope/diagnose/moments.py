"""Adam's second moments against the gradients that they average: what vanished, what eps decides, what stands still.

Reads the sampled statistics of whole tensors; element by element nothing is known here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from ampscope.diagnose.frames import Row, items, null, number, records, text, whole
from ampscope.diagnose.policy import Policy
from ampscope.diagnose.signals import Signals

MIN_NORMAL = {"float16": -14, "bfloat16": -126, "float32": -126, "float64": -1022}
"""Exponent of the smallest normal number (IEEE 754-2019, table 3.5)."""

STARTS = 16
"""Samples from which the expected course of a moment is followed."""


@dataclass(frozen=True)
class Sample:
    """One second moment after one step. Counts are elements; `mean` is the mean of v, `g2` that of the squared true
    gradient (None where its scale is not known), `hist` counts |v| per binade from `hist_lo` on. `asked` is the number
    of elements whose gradient was not zero, None where the gradient was not sampled."""

    segment: int
    step: int
    taken: int
    numel: int
    zeros: int
    mean: float
    hist_lo: int
    hist: tuple[int, ...]
    g2: float | None
    asked: int | None

    def below(self, limit_log2: float) -> float:
        """Nonzero elements below 2^limit_log2; within the binade that it cuts, spread evenly in log2."""
        found = 0.0
        for e, n in enumerate(self.hist, self.hist_lo):
            found += n * min(1.0, max(0.0, limit_log2 - e))
        return found

    @property
    def unasked_zeros(self) -> int:
        """Zeros under a gradient that is not zero, at least: the others may never have had one."""
        return 0 if self.asked is None else max(0, self.zeros - (self.numel - self.asked))


@dataclass(frozen=True)
class Moment:
    """The samples of one parameter's second moment, in order. `beta2` and `eps` are None where not recorded."""

    rank: int
    proc: int
    name: str
    dtype: str
    owner: str | None
    beta2: float | None
    eps: float | None
    samples: tuple[Sample, ...]


_cache: WeakKeyDictionary[Signals, tuple[Moment, ...]] = WeakKeyDictionary()


def moments_of(s: Signals) -> tuple[Moment, ...]:
    """The second moments of all parameters that were sampled, by (rank, proc, name)."""
    known = _cache.get(s)
    if known is None:
        known = _cache[s] = tuple(_read(s))
    return known


def _read(s: Signals) -> list[Moment]:
    gradients = _gradients(s)
    params = {str(r["name"]): r for r in records(s.params)}
    groups: dict[tuple[int, int, str, str], list[Sample]] = {}
    for r in records(s.tensors("exp_avg_sq")):
        if null(r["numel"]):
            continue
        key = (int(r["rank"]), whole(r["proc"]) or 0, str(r["name"]), str(r["dtype"]))
        gradient = gradients.get((key[0], key[1], int(r["segment"]), key[2]))
        groups.setdefault(key, []).append(_sample(r, gradient))
    found = []
    for (rank, proc, name, dtype), samples in sorted(groups.items()):
        param = params.get(name, {})
        betas, eps = items(param.get("betas")), param.get("eps")
        beta2 = float(betas[1]) if len(betas) > 1 else None
        owner = text(param.get("owner"))
        eps = None if null(eps) else float(str(eps))
        found.append(Moment(rank, proc, name, dtype, owner, beta2, eps, tuple(samples)))
    return found


def _sample(row: Row, gradient: tuple[float | None, int] | None) -> Sample:
    numel = int(row["numel"])
    taken = whole(row["opt_step"])
    return Sample(
        segment=int(row["segment"]),
        step=int(row["step"]),
        taken=int(row["step"]) if taken is None else taken,
        numel=numel,
        zeros=int(row["zeros"]),
        mean=float(row["sum"]) / numel if numel else 0.0,
        hist_lo=whole(row["hist_lo"]) or 0,
        hist=tuple(int(n) for n in items(row["hist"])),
        g2=gradient[0] if gradient else None,
        asked=gradient[1] if gradient else None,
    )


_STAGES = ("post_clip", "pre_clip", "pre_unscale")
"""Stages at which a gradient may have been read, the last before the step first."""


def _gradients(s: Signals) -> Mapping[tuple[int, int, int, str], tuple[float | None, int]]:
    """Per (rank, proc, segment, name): (mean squared true gradient, elements that are not zero)."""
    found: dict[tuple[int, int, int, str], tuple[float | None, int]] = {}
    best: dict[tuple[int, int, int, str], int] = {}
    for row in records(s.tensors("grad")):
        numel = whole(row["numel"])
        key = (int(row["rank"]), whole(row["proc"]) or 0, int(row["segment"]), str(row["name"]))
        stage = _STAGES.index(row["stage"]) if row["stage"] in _STAGES else len(_STAGES)
        if not numel or best.get(key, 9) <= stage:
            continue
        best[key] = stage
        scale = None if null(row["scale"]) else number(row["scale"])
        if scale is None and not s.scaler_used:
            scale = 1.0
        g2 = number(row["sumsq"]) / numel / scale**2 if scale else None
        found[key] = (g2, numel - int(number(row["zeros"])) - int(number(row["nan"])))
    return found


def gradient_norms(s: Signals, names: set[str]) -> Mapping[int, float]:
    """Norm of the true gradients of these parameters together, per segment; segments without any are left out."""
    totals: dict[int, float] = {}
    numels = {str(n): int(k) for n, k in zip(s.params["name"], s.params["numel"].fillna(0), strict=True)}
    for (_, _, segment, name), (g2, _) in _gradients(s).items():
        if name in names and g2 is not None and math.isfinite(g2):
            totals[segment] = totals.get(segment, 0.0) + g2 * numels.get(name, 1)
    return {segment: math.sqrt(total) for segment, total in totals.items()}


# -- judgements ------------------------------------------------------------------------------------------------------


def vanished(moment: Moment, dtype: str | None = None) -> tuple[float, float]:
    """(elements whose second moment is zero or subnormal although they have a gradient, elements with a gradient) over
    the later half of the samples."""
    lost = asked = 0.0
    normal = MIN_NORMAL.get(dtype or moment.dtype, -126)
    for x in moment.samples[len(moment.samples) // 2 :]:
        if x.asked:
            lost += min(x.asked, x.unasked_zeros + x.below(normal))
            asked += x.asked
    return lost, asked


def decided_by_eps(moment: Moment, sample: Sample, margin: float) -> float:
    """Elements with a gradient for which margin * sqrt(v / (1 - beta2^t)) is below eps (Kingma and Ba 2015,
    algorithm 1)."""
    if not moment.eps or sample.asked is None:
        return 0.0
    correction = 1.0 - moment.beta2 ** (sample.taken + 1) if moment.beta2 is not None else 1.0
    limit = 2.0 * math.log2(moment.eps / margin) + math.log2(max(correction, 1e-12))
    return min(sample.asked, sample.below(limit) + sample.unasked_zeros)


@dataclass(frozen=True)
class Course:
    """What a second moment did between two samples: `asked` is the change, relative to itself, that the gradients call
    for, `followed` the part of that change which took place."""

    start: Sample
    end: Sample
    asked: float
    followed: float


def course(moment: Moment, policy: Policy) -> Course | None:
    """The latest stretch up to the last sample over which the gradients asked for a change worth speaking of.

    v <- beta2 v + (1 - beta2) g^2 is linear, so that the mean over the elements obeys it as each element does; between
    samples the squared gradient of the later one is taken.
    """
    known = [x for x in moment.samples if x.g2 is not None and math.isfinite(x.g2) and math.isfinite(x.mean)]
    if moment.beta2 is None or not 0.0 < moment.beta2 < 1.0 or len(known) < 3:
        return None
    for first in sorted({round(i) for i in np.linspace(0, len(known) - 2, STARTS)}, reverse=True):
        found = _course(known, first, moment.beta2)
        if found is not None and abs(found.asked) >= policy.moment_asked:
            return found
    return None


def _course(known: Sequence[Sample], first: int, beta2: float) -> Course | None:
    start, end = known[first], known[-1]
    if not start.mean > 0.0:
        return None
    expected, before = start.mean, start.taken
    for x in known[first + 1 :]:
        kept = beta2 ** max(0, x.taken - before)
        expected, before = kept * expected + (1.0 - kept) * (x.g2 or 0.0), x.taken
    change = expected - start.mean
    if change == 0.0:
        return None
    return Course(start, end, change / start.mean, (end.mean - start.mean) / change)
