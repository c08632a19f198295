"""Exponent histograms: what was read, heat maps over steps, one tensor over steps, every tensor for the what-if.

Values are *as held* when they still carry the loss scale, *true* when it is taken out (a shift of the histogram).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ampscope.app.queries import steps
from ampscope.app.queries.source import Source

COLUMNS = 180
"""Most columns of a heat map."""

CELLS = 90_000
"""Most cells that are read for one; a model of very many tensors gets fewer columns, but never under 24."""

HISTORY = 240
"""Most columns of one tensor's histogram over steps."""

SAMPLED = 48
"""Steps that the what-if over all tensors looks at, spread over the run."""

ROLES = (
    "grad",
    "activation_grad",
    "activation",
    "weight",
    "update",
    "exp_avg",
    "exp_avg_sq",
    "momentum",
    "buffer",
)

STAGES = ("pre_unscale", "pre_clip", "post_clip")

_TRUE_SHIFT = "coalesce(CAST(round(log2(CASE WHEN scale > 0 AND isfinite(scale) THEN scale END)) AS INT), 0)"
"""By how many binades the values are above the true ones."""


_CHOSEN = """
    SELECT step, segment FROM (
        SELECT step, segment, row_number() OVER (ORDER BY step, segment) AS nth, count(*) OVER () AS n
        FROM {steps} WHERE NOT coalesce(skipped, false) AND level NOT IN ('pulse', 'count'))
    WHERE nth % greatest(1, n // 48) = 0 OR nth = n"""
"""SQL: sampled segments spread over the run, skipped ones left out."""


GRADIENTS = """role = 'activation_grad' OR (role = 'grad' AND stage IS NOT DISTINCT FROM (
    SELECT arg_min(stage, CASE stage WHEN 'pre_unscale' THEN 0 WHEN 'pre_clip' THEN 1 ELSE 2 END)
    FROM {tensors} WHERE role = 'grad'))"""
"""SQL: gradients as near to backward as they were read; clipped ones say less."""


@dataclass(frozen=True)
class Held:
    """One kind of tensor that the trace holds: a role, and for gradients a stage ('' elsewhere)."""

    role: str
    stage: str
    tensors: int


def held(src: Source) -> list[Held]:
    """What the trace holds, in the order of `ROLES` and `STAGES`."""
    rows = src.frame(
        """SELECT role, stage, count(*) AS tensors
           FROM (SELECT DISTINCT role, coalesce(stage, '') AS stage, name FROM {tensors}) GROUP BY ALL"""
    )
    columns = (rows[c].tolist() for c in ("role", "stage", "tensors"))
    found = [Held(role, stage, int(n)) for role, stage, n in zip(*columns, strict=True)]

    def place(h: Held) -> tuple[int, int]:
        return (
            ROLES.index(h.role) if h.role in ROLES else len(ROLES),
            STAGES.index(h.stage) if h.stage in STAGES else -1,
        )

    return sorted(found, key=place)


def gradients(src: Source) -> list[Held]:
    """Gradients as near to backward as they were read, clipped ones say less: the first kind of parameter gradients
    that the trace holds, then activation gradients."""
    kinds = held(src)
    own = sorted((h for h in kinds if h.role == "grad"), key=lambda h: not h.stage)
    return own[:1] + [h for h in kinds if h.role == "activation_grad"]


def bucket_width(src: Source, columns: int) -> int:
    """Steps per column so that the whole run fits into `columns`."""
    first, last, n = steps.span(src)
    return max(1, -(-(last - first + 1) // columns)) if n else 1


def heat(src: Source, role: str, stage: str, low: bool = True) -> pd.DataFrame:
    """Counts per tensor and bucket of steps, of the values as held.

    Columns name, bucket, first, last (steps of the bucket), dtype, numel, zeros, nan, inf, overflow (finite,
    >= 65520), amax, amin, sumsq, and with `low`: flushed (|x| < 2^-25), subnormal (2^-25 <= |x| < 2^-14). These
    two need the histograms, which are most of a trace: without them it takes a fifth of the time.
    """
    below_normal = f", sum({below(-25)}) AS flushed, sum({below(-14)}) - sum({below(-25)}) AS subnormal"
    count = next((h.tensors for h in held(src) if (h.role, h.stage) == (role, stage)), 1)
    width = bucket_width(src, max(24, min(COLUMNS, CELLS // count)))
    return src.frame(
        f"""
        SELECT name, step // {width} AS bucket, min(step) AS first, max(step) AS last, any_value(dtype) AS dtype,
               sum(numel) AS numel, sum(zeros) AS zeros, sum(nan) AS nan, sum(posinf) + sum(neginf) AS inf,
               sum(ge_65520) AS overflow, max(amax) AS amax, min(amin_nonzero) AS amin, sum(sumsq) AS sumsq
               {below_normal if low else ""}
        FROM {{tensors}} WHERE role = ? AND coalesce(stage, '') = ?
        GROUP BY name, bucket""",
        role,
        stage,
    )


def below(exponent: int) -> str:
    """SQL: finite nonzero elements with |x| < 2^exponent, from one row's histogram."""
    count = f"coalesce(list_sum(hist[1:{exponent} - hist_lo]), 0)"
    return f"CASE WHEN hist_lo < {exponent} THEN {count} ELSE 0 END"


@dataclass(frozen=True)
class History:
    """Histograms of one tensor over steps, of its true values.

    `counts[i, j]` is the number of elements with exponent `low + i` in column j; `zeros`, `nan`, `inf`, `numel`
    are per column; `first` and `last` are the steps of each column; `scale` is the loss scale the values
    carried when read (1 when none); `inexact` says that a scale was no power of two, so that bins are off by < 1.
    """

    low: int
    counts: np.ndarray
    numel: np.ndarray
    zeros: np.ndarray
    nan: np.ndarray
    inf: np.ndarray
    first: np.ndarray
    last: np.ndarray
    scale: np.ndarray
    amax: np.ndarray
    dtype: str
    inexact: bool

    @property
    def high(self) -> int:
        """Exponent of the topmost row."""
        return self.low + len(self.counts) - 1


def history(src: Source, role: str, stage: str, name: str) -> History | None:
    """Histograms of one tensor over steps; None when the trace holds none."""
    width = bucket_width(src, HISTORY)
    which = "WHERE role = ? AND coalesce(stage, '') = ? AND name = ?"
    per = src.frame(
        f"""
        SELECT step // {width} AS bucket, min(step) AS first, max(step) AS last, sum(numel) AS numel,
               sum(zeros) AS zeros, sum(nan) AS nan, sum(posinf) + sum(neginf) AS inf,
               max(coalesce(scale, 1)) AS scale, max(amax / coalesce(nullif(scale, 0), 1)) AS amax,
               any_value(dtype) AS dtype, bool_or(log2(scale) <> round(log2(scale))) AS inexact
        FROM {{tensors}} {which} AND coalesce(scale, 1) >= 0 GROUP BY bucket ORDER BY bucket""",
        role,
        stage,
        name,
    )
    if per.empty:
        return None
    bins = src.frame(
        f"""
        SELECT bucket, exponent, sum(n) AS n FROM (
            SELECT step // {width} AS bucket, unnest(hist) AS n,
                   hist_lo - {_TRUE_SHIFT} + generate_subscripts(hist, 1) - 1 AS exponent
            FROM {{tensors}} {which} AND coalesce(scale, 1) >= 0)
        GROUP BY ALL""",
        role,
        stage,
        name,
    )
    low = int(bins["exponent"].min()) if len(bins) else 0
    high = int(bins["exponent"].max()) if len(bins) else 0
    counts = np.zeros((high - low + 1, len(per)), dtype=np.int64)
    column = {bucket: j for j, bucket in enumerate(per["bucket"])}
    if len(bins):
        where = bins["bucket"].map(column).to_numpy()
        counts[bins["exponent"].to_numpy() - low, where] = bins["n"].to_numpy(dtype=np.int64)
    whole = {k: per[k].to_numpy(dtype=np.int64) for k in ("numel", "zeros", "nan", "inf", "first", "last")}
    return History(
        low=low,
        counts=counts,
        scale=per["scale"].to_numpy(dtype=np.float64),
        amax=per["amax"].to_numpy(dtype=np.float64),
        dtype=str(per["dtype"].iloc[-1]),
        inexact=bool(per["inexact"].fillna(False).any()),
        **whole,
    )


@dataclass(frozen=True)
class Spectrum:
    """Histogram of the true values of one tensor, summed over the sampled steps. `low` is the exponent of
    `counts[0]`; `amax` is the largest true magnitude (0 when none is finite and nonzero)."""

    name: str
    low: int
    counts: tuple[int, ...]
    numel: int
    zeros: int
    nonfinite: int
    amax: float


def sampled(src: Source, role: str, stage: str) -> pd.DataFrame:
    """Histograms of at most `SAMPLED` steps spread over the run, skipped ones left out; one row per reading.

    A skipped step holds the values of a scale that was given up; it would close the window of every scale.
    Columns name, step, low (exponent of the first bin, of true values), hist (null where none was kept), numel,
    zeros, bad (NaN and inf), amax (true). Everything that looks at single histograms shares it: reading them is
    what takes the time.
    """
    return src.frame(
        f"""
        WITH chosen AS ({_CHOSEN})
        SELECT name, step, hist_lo - {_TRUE_SHIFT} AS low, hist, numel, zeros, nan + posinf + neginf AS bad,
               amax / coalesce(nullif(scale, 0), 1) AS amax
        FROM {{tensors}} SEMI JOIN chosen USING (step, segment) WHERE role = ? AND coalesce(stage, '') = ?""",
        role,
        stage,
    )


def _bins(rows: pd.DataFrame, by: str) -> pd.DataFrame:
    """Columns `by`, exponent, n: the histograms of `sampled` rows added up per value of `by`, in order."""
    rows = rows[rows["hist"].map(lambda h: h is not None and len(h) > 0).to_numpy(dtype=bool)]
    if rows.empty:
        return pd.DataFrame({by: [], "exponent": [], "n": []}).astype({"exponent": "int64", "n": "int64"})
    lengths = rows["hist"].map(len).to_numpy(dtype=np.int64)
    starts = np.cumsum(lengths) - lengths
    within = np.arange(lengths.sum()) - np.repeat(starts, lengths)
    exponents = np.repeat(rows["low"].to_numpy(dtype=np.int64), lengths) + within
    codes, keys = pd.factorize(rows[by], sort=True)
    lowest, wide = exponents.min(), int(np.ptp(exponents)) + 1
    sums = np.zeros(len(keys) * wide, dtype=np.int64)
    seen = np.zeros(len(sums), dtype=bool)
    cell = np.repeat(codes, lengths) * wide + exponents - lowest
    np.add.at(sums, cell, np.concatenate(rows["hist"].tolist()).astype(np.int64))
    seen[cell] = True
    at = np.flatnonzero(seen)
    return pd.DataFrame({by: keys[at // wide], "exponent": at % wide + lowest, "n": sums[at]})


def spectra(src: Source, role: str, stage: str) -> list[Spectrum]:
    """One per tensor, over the `sampled` steps."""
    rows = sampled(src, role, stage)
    bins = {str(name): part for name, part in _bins(rows, "name").groupby("name")}
    grouped = rows.groupby("name", sort=True)
    sums = grouped[["numel", "zeros", "bad"]].sum().assign(amax=grouped["amax"].max())
    return [_spectrum(str(row.Index), bins.get(str(row.Index)), row) for row in sums.itertuples()]


def _spectrum(name: str, bins: pd.DataFrame | None, row: Any) -> Spectrum:
    low, counts = 0, np.zeros(0, dtype=np.int64)
    if bins is not None:
        at = bins["exponent"].to_numpy(dtype=np.int64)
        low = int(at[0])
        counts = np.zeros(int(at[-1]) - low + 1, dtype=np.int64)
        counts[at - low] = bins["n"].to_numpy(dtype=np.int64)
    return Spectrum(
        name=name,
        low=low,
        counts=tuple(counts.tolist()),
        numel=int(row.numel),
        zeros=int(row.zeros),
        nonfinite=int(row.bad),
        amax=float(row.amax) if np.isfinite(row.amax) else 0.0,
    )


def limits(src: Source) -> pd.DataFrame:
    """Per bucket of steps, of the true gradients: columns step, amax (largest magnitude) and closer (its tensor).

    65504 / amax is the largest loss scale that overflows nothing at that step.
    """
    width = bucket_width(src, HISTORY)
    return src.frame(
        f"""
        SELECT max(step) AS step, max(true_amax) AS amax, arg_max(name, true_amax) AS closer FROM (
            SELECT step, name, amax / coalesce(nullif(scale, 0), 1) AS true_amax FROM {{tensors}}
            WHERE role IN ('grad', 'activation_grad') AND amax > 0)
        GROUP BY step // {width} ORDER BY step"""
    )


def totals(src: Source) -> pd.DataFrame:
    """Of sampled segments: columns step, exponent, n; nonzero true gradients of all tensors together, in order."""
    rows = [sampled(src, kind.role, kind.stage)[["step", "low", "hist"]] for kind in gradients(src)]
    return _bins(pd.concat(rows) if rows else pd.DataFrame({"step": [], "low": [], "hist": []}), "step")


def floors(src: Source) -> pd.DataFrame:
    """Of sampled segments: columns step and exponent, 1 % of all nonzero true gradients lie below 2^exponent.

    A loss scale of 2^-24 / 2^exponent keeps the rest representable in float16.
    """
    bins = totals(src)
    counts = bins.groupby("step")["n"]
    beyond = bins[counts.cumsum() > 0.01 * counts.transform("sum")]
    return beyond.groupby("step", as_index=False).agg({"exponent": "min"})
