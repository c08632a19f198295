"""Gradient exponents as the backward pass carried them, that is times the loss scale, against the float16 range."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace

from ampscope.report.model import Column, Fact, HeatMap, Table
from ampscope.report.query import Row, Stream, TraceView, fetch, first, quoted

COLUMNS = 96
"""Sampled steps that are read, evenly chosen: bounds the work on a trace of any size."""

TENSORS = 40
FLUSH_BELOW = -25
"""Bins below this exponent hold |x| < 2^-25: rounded to zero in float16 (IEEE 754, ties to even)."""
SUBNORMAL_BELOW = -14
OVERFLOW_FROM = 16
MARGIN = 2
"""Binades shown beyond the largest and smallest value."""

_SAMPLED = """
WITH seg AS (SELECT DISTINCT step, segment FROM tensors WHERE {where} AND role = 'grad' AND {stage}),
     ranked AS (SELECT *, row_number() OVER (ORDER BY segment) - 1 AS i, count(*) OVER () AS n FROM seg)
SELECT step, segment FROM ranked
WHERE n <= {most} OR i * {most} // n > (i - 1) * {most} // n OR i = 0 ORDER BY segment
"""

_BINS = """
WITH chosen AS (
  SELECT t.step, t.segment, t.name, t."order", t.numel, t.zeros, t.nan + t.posinf + t.neginf AS bad, t.hist_lo, t.hist,
         CASE WHEN coalesce(t.scaled, false) THEN 0
              WHEN s.scale > 0 AND isfinite(s.scale) THEN round(log2(s.scale / coalesce(nullif(t.scale, 0), 1)))
              ELSE 0 END AS shift
  FROM tensors t LEFT JOIN (SELECT segment, any_value(scale) AS scale FROM steps WHERE {where} GROUP BY segment) s
       USING (segment)
  WHERE {where_t} AND t.role = 'grad' AND {stage_t} AND t.segment IN ({segments})),
bins AS (
  SELECT {group} AS g, CAST(hist_lo + shift + i AS INTEGER) AS e, n FROM (
    SELECT {group}, hist_lo, shift, unnest(hist) AS n, generate_subscripts(hist, 1) - 1 AS i FROM chosen)),
counted AS (SELECT g, e, CAST(sum(n) AS BIGINT) AS n FROM bins WHERE n > 0 GROUP BY g, e),
totals AS (SELECT {group} AS g, CAST(sum(numel) AS BIGINT) AS numel, CAST(sum(zeros) AS BIGINT) AS zeros,
           CAST(sum(bad) AS BIGINT) AS bad, min("order") AS place FROM chosen GROUP BY g)
SELECT t.g, t.numel, t.zeros, t.bad, t.place, c.e, c.n FROM totals t LEFT JOIN counted c USING (g) ORDER BY t.g, c.e
"""


@dataclass(frozen=True)
class Spread:
    """Elements per exponent of one step or one tensor; `place` is its order in the backward pass."""

    label: str
    numel: int
    zeros: int
    bad: int
    place: int
    bins: dict[int, int]

    def between(self, low: float, high: float) -> int:
        """Elements with low <= exponent < high."""
        return sum(n for e, n in self.bins.items() if low <= e < high)

    @property
    def nonzero(self) -> int:
        return sum(self.bins.values())

    @property
    def flushed(self) -> float | None:
        """Share of the finite nonzero elements that float16 rounds to zero."""
        return self.between(-math.inf, FLUSH_BELOW) / self.nonzero if self.nonzero else None

    @property
    def subnormal(self) -> float | None:
        """Share of the finite nonzero elements that are subnormal in float16."""
        return self.between(FLUSH_BELOW, SUBNORMAL_BELOW) / self.nonzero if self.nonzero else None

    @property
    def overflow(self) -> float | None:
        """Share of the finite nonzero elements of 2^16 and above."""
        return self.between(OVERFLOW_FROM, math.inf) / self.nonzero if self.nonzero else None

    @property
    def headroom(self) -> int | None:
        """Binades between the highest occupied bin and the last finite one of float16."""
        return OVERFLOW_FROM - 1 - max(self.bins) if self.bins else None


@dataclass(frozen=True)
class Gradients:
    """Spreads by step and by tensor, and how they were read."""

    by_step: tuple[Spread, ...] = ()
    by_tensor: tuple[Spread, ...] = ()
    scaled: bool = False


def read(trace: TraceView, stream: Stream) -> Gradients:
    """Spreads of all parameter gradients of one process; empty when none was sampled."""
    stage = _stage(trace, stream)
    if stage is None:
        return Gradients()
    sampled = fetch(trace, _SAMPLED.format(where=stream.where, stage=stage, most=COLUMNS))
    carried = first(
        trace,
        f"SELECT (SELECT count(*) FROM steps WHERE {stream.where} AND scale IS NOT NULL) + "
        f"(SELECT count(*) FROM tensors WHERE {stream.where} AND role = 'grad' AND scaled) AS n",
    )
    has_scale = bool(carried["n"])
    by_step = _spreads(trace, stream, stage, "step", sampled)
    by_tensor = sorted(_spreads(trace, stream, stage, "name", sampled), key=lambda s: (s.place, s.label))
    return Gradients(tuple(by_step), tuple(by_tensor), has_scale)


def _stage(trace: TraceView, stream: Stream) -> str | None:
    """SQL condition that picks the earliest recorded moment of the gradients, so that each counts once."""
    rows = fetch(trace, f"SELECT DISTINCT stage FROM tensors WHERE {stream.where} AND role = 'grad'")
    found = {r["stage"] for r in rows}
    for stage in ("pre_unscale", "pre_clip", None, "post_clip"):
        if stage in found:
            return "stage IS NULL" if stage is None else f"stage = {quoted(stage)}"
    return None


def _spreads(trace: TraceView, stream: Stream, stage: str, group: str, sampled: list[Row]) -> list[Spread]:
    segments = ", ".join(str(int(r["segment"])) for r in sampled)
    rows = fetch(
        trace,
        _BINS.format(
            where=stream.where, where_t=stream.of("t"), stage_t=f"t.{stage}", group=group, segments=segments
        ),
    )
    totals: dict[object, Row] = {}
    bins: defaultdict[object, dict[int, int]] = defaultdict(dict)
    for row in rows:
        totals.setdefault(row["g"], row)
        if row["e"] is not None:
            bins[row["g"]][row["e"]] = row["n"]
    return [
        Spread(str(g), t["numel"] or 0, t["zeros"] or 0, t["bad"] or 0, t["place"] or 0, bins[g])
        for g, t in totals.items()
    ]


def over_steps(found: Gradients) -> HeatMap | None:
    """Exponent × step, all parameter gradients together."""
    return _heat(
        "All parameter gradients over the sampled steps",
        "exponent-rows",
        found.by_step,
        found,
        len(found.by_step),
    )


def by_tensor(found: Gradients) -> HeatMap | None:
    """Tensor × exponent. Of many tensors those with most elements outside the normal float16 range are shown."""
    worst = sorted(found.by_tensor, key=lambda s: (-_outside(s), s.place, s.label))[:TENSORS]
    shown = tuple(sorted(worst, key=lambda s: (s.place, s.label)))
    title = "Parameter gradients, all sampled steps together"
    heat = _heat(title, "exponent-columns", shown, found, len(found.by_tensor))
    return replace(heat, note="The same, per tensor.") if heat else None


def _outside(spread: Spread) -> float:
    inside = spread.between(SUBNORMAL_BELOW, OVERFLOW_FROM)
    return 1.0 - inside / spread.nonzero if spread.nonzero else float(spread.bad > 0)


def _heat(title: str, axis: str, spreads: tuple[Spread, ...], found: Gradients, total: int) -> HeatMap | None:
    exponents = [e for s in spreads for e in s.bins]
    if not spreads:
        return None
    low = min([*exponents, FLUSH_BELOW]) - MARGIN
    high = max([*exponents, OVERFLOW_FROM]) + MARGIN
    span = range(low, high + 1)
    if axis == "exponent-rows":
        cells = tuple(tuple(_part(s, s.bins.get(e, 0)) for s in spreads) for e in reversed(span))
    else:
        cells = tuple(tuple(_part(s, s.bins.get(e, 0)) for e in span) for s in spreads)
    return HeatMap(
        title=title,
        axis="exponent-rows" if axis == "exponent-rows" else "exponent-columns",
        low=low,
        high=high,
        labels=tuple(s.label for s in spreads),
        cells=cells,
        zeros=tuple(_part(s, s.zeros) for s in spreads),
        nonfinite=tuple(_part(s, s.bad) for s in spreads),
        note=_note(found),
        total=total,
    )


def _part(spread: Spread, count: int) -> float | None:
    return count / spread.numel if spread.numel else None


def _note(found: Gradients) -> str:
    carried = "times the loss scale in force" if found.scaled else "as they are: no loss scale was in force"
    return f"Absolute values {carried}; exact zeros and non-finite elements are counted apart."


def fact(found: Gradients) -> Fact | None:
    """Share of the nonzero gradient elements that float16 rounds to zero; of the zeros when nothing else is left."""
    nonzero = sum(s.nonzero for s in found.by_step)
    numel = sum(s.numel for s in found.by_step)
    if numel and not nonzero:
        zeros = sum(s.zeros for s in found.by_step) / numel
        return Fact(
            "gradients exactly zero", zeros, "share", "of all parameter-gradient elements", "observed"
        )
    if not nonzero:
        return None
    flushed = sum(s.between(-math.inf, FLUSH_BELOW) for s in found.by_step)
    at = "at the loss scale in force" if found.scaled else "without loss scaling"
    detail = f"of nonzero parameter-gradient elements, in float16 {at}; a lower bound, zeros left out"
    return Fact("gradients flushed to zero", flushed / nonzero, "share", detail, "predicted")


def table(found: Gradients) -> Table | None:
    """Per tensor: zeros, flushed, subnormal, headroom; the worst first."""
    if not found.by_tensor:
        return None
    key = [
        (-(s.bad > 0), -(s.flushed or 0.0), s.headroom if s.headroom is not None else 99, s.label, s)
        for s in found.by_tensor
    ]
    ordered = [k[-1] for k in sorted(key, key=lambda k: k[:-1])]
    rows = tuple(
        (
            s.label,
            s.zeros / s.numel if s.numel else None,
            s.flushed,
            s.subnormal,
            s.overflow,
            s.headroom,
            s.bad,
        )
        for s in ordered[:TENSORS]
    )
    columns = (
        Column("parameter gradient", "name"),
        Column("zeros", "share"),
        Column("flushed", "share"),
        Column("subnormal", "share"),
        Column("overflow", "share"),
        Column("headroom, binades", "number"),
        Column("NaN or inf", "number"),
    )
    note = "In float16, " + ("times the loss scale in force" if found.scaled else "without loss scaling")
    note += "; flushed, subnormal and overflow are shares of the nonzero elements (predicted)."
    return Table("Gradients in the range of float16", columns, rows, len(found.by_tensor), note)
