"""What a narrower format would do to the recorded tensors, from their exponent histograms alone.

Counts by binade only, so that thresholds between powers of two are interpolated; without torch, which the arithmetic
of `ampscope.numerics` would bring along. A test holds the two equal.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ampscope.diagnose.frames import Row, items, null, number, records, text
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.work import matrices_of

FP16_SMALLEST_OVERFLOW = 65520.0


@dataclass(frozen=True)
class Narrow:
    """A format by what matters here: |x| up to 2^flush_log2 becomes zero, below 2^normal_log2 digits are lost, and
    `largest` is the largest finite value (IEEE 754-2019; OCP OFP8 1.0; OCP MX 1.0)."""

    name: str
    flush_log2: int
    normal_log2: int
    largest: float


FP16 = Narrow("fp16", -25, -14, 65504.0)
E4M3 = Narrow("fp8 e4m3", -10, -6, 448.0)
E5M2 = Narrow("fp8 e5m2", -17, -14, 57344.0)
E2M1 = Narrow("fp4 e2m1", -2, 0, 6.0)


@dataclass
class Spread:
    """The values of one tensor over all its samples, the loss scale taken out: counts per binade, zeros, largest."""

    name: str
    module: str | None
    role: str
    samples: int = 0
    nonfinite: int = 0
    zeros: int = 0
    amax: float = 0.0
    first: int = 0
    last: int = 0
    bins: dict[int, float] = field(default_factory=dict)

    @property
    def nonzero(self) -> float:
        return sum(self.bins.values())

    def add(self, row: Row, shift: int) -> None:
        """Count one row of the table tensors whose values carry a scale of 2^shift."""
        for e, n in enumerate(items(row["hist"]), int(number(row["hist_lo"]))):
            self.bins[e - shift] = self.bins.get(e - shift, 0.0) + float(n)
        step = int(row["step"])
        self.first, self.last = (
            (min(self.first, step), max(self.last, step)) if self.samples else (step, step)
        )
        self.samples += 1
        self.zeros += int(number(row["zeros"]))
        self.nonfinite += int(number(row["nan"]) + number(row["posinf"]) + number(row["neginf"]))
        self.amax = max(self.amax, math.ldexp(number(row["amax"]), -shift))

    def at_most(self, limit_log2: float) -> float:
        """Nonzero elements with |x| <= 2^limit_log2, spread evenly in log2 within the binade that the limit cuts."""
        return sum(n * min(1.0, max(0.0, limit_log2 - e)) for e, n in self.bins.items())

    def flushed(self, fmt: Narrow, scale_log2: float) -> float:
        """Share of the nonzero elements that become zero in `fmt` after multiplication by 2^scale_log2."""
        return self.at_most(fmt.flush_log2 - scale_log2) / self.nonzero if self.nonzero else 0.0

    def subnormal(self, fmt: Narrow, scale_log2: float) -> float:
        """Share of the nonzero elements that keep fewer digits there."""
        below = self.at_most(fmt.normal_log2 - scale_log2) / self.nonzero if self.nonzero else 0.0
        return below - self.flushed(fmt, scale_log2)

    def own_scale(self, fmt: Narrow) -> float:
        """log2 of the scale that puts the largest value at the format's largest: per-tensor current scaling."""
        return math.log2(fmt.largest / self.amax) if self.amax > 0.0 else 0.0


def spreads(s: Signals, *roles: str) -> tuple[Spread, ...]:
    """The tensors of these roles that were sampled, by role and name; those whose scale is not known are left out."""
    found: dict[tuple[str, str], Spread] = {}
    for row in records(s.tensors(*roles)):
        scale = number(row["scale"], 1.0) if not null(row["scale"]) or not s.scaler_used else 0.0
        if null(row["numel"]) or not scale > 0.0 or row["stage"] in ("pre_unscale", "pre_clip"):
            continue
        key = (str(row["role"]), str(row["name"]))
        spread = found.setdefault(key, Spread(key[1], text(row["module"]), key[0]))
        spread.add(row, round(math.log2(scale)))
    return tuple(found[key] for key in sorted(found))


def unfit(s: Signals) -> str | None:
    """Why the ranges of this run say nothing about the next precision; None for a run in order."""
    known = s.steps[s.steps["loss_known"]]["loss"].astype(float)
    if not known.map(math.isfinite).all() or (s.rows["nonfinite"] > 0 and not s.scaler_used):
        return "the run holds NaN or inf, so its ranges say nothing"
    asked = s.steps["outcome"].isin(["stepped", "skipped"])
    skipped = s.steps["outcome"].eq("skipped")
    if asked.any() and skipped.sum() / asked.sum() > s.policy.ready_skips:
        return "many steps of this run were skipped, so its ranges say little"
    return None


def of_matrices(s: Signals, *roles: str) -> list[Spread]:
    """The weight matrices, and the tensors of the modules that hold one, that were sampled often enough."""
    known = matrices_of(s)
    return [
        t
        for t in spreads(s, *roles)
        if (t.name in known.names if t.role == "weight" else t.module in known.modules)
        and t.samples >= s.policy.ready_samples
        and t.nonzero
    ]


# -- the window of loss scales ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Window:
    """Loss scales 2^low to 2^high suit every gradient; `closes_low` flushes below it, `closes_high` overflows above."""

    low: int
    high: int
    closes_low: str
    closes_high: str

    @property
    def open(self) -> bool:
        return self.low <= self.high


LOWEST, HIGHEST = -126, 126


def window_of(gradients: Iterable[Spread], flushed: float) -> Window | None:
    """The powers of two at which no gradient overflows fp16 and none loses more than `flushed` of its elements; None
    without a nonzero gradient."""
    lows: list[tuple[int, str]] = []
    highs: list[tuple[int, str]] = []
    for g in gradients:
        if g.nonzero:
            lows.append((_lowest(g, flushed), g.name))
            highs.append((math.ceil(math.log2(FP16_SMALLEST_OVERFLOW / g.amax)) - 1, g.name))
    if not lows:
        return None
    (low, low_name), (high, high_name) = max(lows), min(highs)
    return Window(low, high, low_name, high_name)


def _lowest(g: Spread, flushed: float) -> int:
    """The smallest k for which the share flushed at a scale of 2^k is within bounds."""
    low, high = LOWEST, HIGHEST
    while low < high:
        middle = (low + high) // 2
        if g.flushed(FP16, middle) <= flushed:
            high = middle
        else:
            low = middle + 1
    return low


def worst_first(tensors: Sequence[Spread], fmt: Narrow) -> list[tuple[float, Spread]]:
    """(flushed share under per-tensor scaling, tensor), worst first."""
    shares = [(t.flushed(fmt, t.own_scale(fmt)), t) for t in tensors if t.nonzero]
    return sorted(shares, key=lambda pair: (-pair[0], pair[1].name))
