"""The four numbers of the first screen, each with what it rests on."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from ampscope.app.queries import ops, timing
from ampscope.app.queries.source import Source
from ampscope.app.queries.tensors import gradients, heat
from ampscope.report.text import plural, seconds, share


@dataclass(frozen=True)
class Number:
    """A share of 0 … 1 or seconds; None when it was not measured, and `note` then says why."""

    value: float | None
    note: str
    basis: str = ""


def flushed(src: Source) -> Number:
    """Gradient elements that float16 turns into zero at the recorded scale.

    Observed where half-precision ops were recomputed in float32; otherwise predicted from the histograms of the
    gradients as held, before unscaling.
    """
    return observed_flushed(src) or _predicted_flushed(src)


def observed_flushed(src: Source) -> Number | None:
    """`flushed` where half-precision ops were recomputed; None where none was. Quick, unlike the prediction."""
    shadow = src.frame(
        """SELECT sum(shadow_flushed) AS flushed, sum(shadow_flushed + n) AS of FROM (
               SELECT shadow_flushed, greatest(0, out_bytes // 2 - out_zeros - coalesce(out_nonfinite, 0)) AS n
               FROM {ops} WHERE shadow_flushed IS NOT NULL AND phase = 'backward')"""
    ).iloc[0]
    if not (shadow["of"] and shadow["of"] > 0):
        return None
    return Number(float(shadow["flushed"] / shadow["of"]), "of recomputed backward results", "observed")


def _predicted_flushed(src: Source) -> Number:
    kind = next((k for k in gradients(src) if k.role == "grad"), None)
    rows = heat(src, kind.role, kind.stage) if kind else None
    if rows is None or not rows["numel"].sum() > 0:
        return Number(None, "no gradient was read")
    sums = rows[["flushed", "subnormal", "numel", "zeros", "nan", "inf"]].astype(float).sum()
    at = "at the recorded scale" if kind and kind.stage == "pre_unscale" else "at scale 1"
    nonzero = float(sums["numel"] - sums["zeros"] - sums["nan"] - sums["inf"])
    if not nonzero > 0:
        return Number(None, "every gradient element is 0, NaN or inf")
    zeros, subnormal = float(sums["zeros"] / sums["numel"]), float(sums["subnormal"] / nonzero)
    note = f"of nonzero elements {at}; {share(subnormal)} subnormal; {share(zeros)} are 0"
    return Number(float(sums["flushed"]) / nonzero, note, "predicted")


def absorbed(src: Source) -> Number:
    """Updates that changed no bit of a half-precision parameter (observed), or that a half-precision copy of a
    float32 parameter would have lost (predicted)."""
    row = src.frame(
        """SELECT sum(unchanged) FILTER (WHERE dtype IN ('float16', 'bfloat16')) AS lost,
                  sum(grad_nonzero) FILTER (WHERE dtype IN ('float16', 'bfloat16')) AS of,
                  sum(absorbed_fp16) FILTER (WHERE dtype NOT IN ('float16', 'bfloat16')) AS would,
                  sum(moved) FILTER (WHERE dtype NOT IN ('float16', 'bfloat16')) AS moved
           FROM {updates}"""
    ).iloc[0]
    if row["of"] and row["of"] > 0:
        return Number(float(row["lost"] / row["of"]), "of half-precision weights did not move", "observed")
    if row["moved"] and row["moved"] > 0:
        lost = share(float(row["would"] / row["moved"]))
        return Number(
            0.0, f"weights are float32; float16 weights would lose {lost} of the updates", "observed"
        )
    return Number(None, "no update was measured")


def low_precision(src: Source) -> Number:
    """Share of matmul-like work in half precision or less, by host time of the census."""
    row = ops.low_precision_share(src).iloc[0]
    if not row["steps"]:
        return Number(None, "no census of ops was taken")
    for time, low, what in (("host_s", "low_host_s", "time"), ("flops", "low_flops", "FLOPs")):
        if pd.notna(row[time]) and row[time] > 0:
            part = float(row[low]) if pd.notna(row[low]) else 0.0
            return Number(part / float(row[time]), f"of matmul and convolution {what}", "observed")
    return Number(None, "no time was measured for the ops that were seen")


def step_time(src: Source) -> Number:
    """Median seconds per step."""
    row = timing.step_times(src).iloc[0]
    if row["n"] == 0 or row["p50"] != row["p50"]:
        return Number(None, "no step was completed")
    note = f"median of {plural(int(row['n']), 'step')}; 95 % are below {seconds(float(row['p95']))}"
    return Number(float(row["p50"]), note, "observed")
