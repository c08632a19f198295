"""What optimizer steps did to parameters: absorbed updates over steps, |dw|/|w| of one parameter, a table of all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from ampscope.app.queries.source import Source
from ampscope.app.queries.tensors import COLUMNS, HISTORY, bucket_width

HALF = ("float16", "bfloat16")

_ABSORBED = "CASE WHEN dtype IN ('float16', 'bfloat16') THEN unchanged END"
"""SQL: elements whose stored bits did not move although their gradient was not zero; null for wider dtypes."""


def heat(src: Source) -> pd.DataFrame:
    """Counts per parameter and bucket of steps. `observed` and `of_observed` are null for float32 parameters.

    Columns name, bucket, first, last, dtype, moved, observed, of_observed, fp16, bf16, below_2_11, below_2_8,
    ratio (update norm / weight norm).
    """
    width = bucket_width(src, COLUMNS)
    return src.frame(
        f"""
        SELECT name, step // {width} AS bucket, min(step) AS first, max(step) AS last, any_value(dtype) AS dtype,
               sum(moved) AS moved, sum({_ABSORBED}) AS observed,
               sum(CASE WHEN dtype IN ('float16', 'bfloat16') THEN grad_nonzero END) AS of_observed,
               sum(absorbed_fp16) AS fp16, sum(absorbed_bf16) AS bf16, sum(below_2_11) AS below_2_11,
               sum(below_2_8) AS below_2_8, median(update_norm / nullif(weight_norm, 0)) AS ratio
        FROM {{updates}} GROUP BY name, bucket"""
    )


def table(src: Source) -> pd.DataFrame:
    """One row per parameter, over the whole run: the columns of `heat` without the steps, and lr."""
    return src.frame(
        f"""
        SELECT name, any_value(dtype) AS dtype, max(of_numel) AS numel, count(*) AS updates, sum(moved) AS moved,
               sum({_ABSORBED}) AS observed,
               sum(CASE WHEN dtype IN ('float16', 'bfloat16') THEN grad_nonzero END) AS of_observed,
               sum(absorbed_fp16) AS fp16, sum(absorbed_bf16) AS bf16, sum(below_2_11) AS below_2_11,
               median(update_norm / nullif(weight_norm, 0)) AS ratio, arg_max(lr, step) AS lr,
               sum(nonfinite_after) AS nonfinite
        FROM {{updates}} GROUP BY name"""
    )


@dataclass(frozen=True)
class RatioHistory:
    """Histogram of |dw|/|w| of one parameter: `counts[i, j]` elements with exponent `low + i` in column j."""

    low: int
    counts: np.ndarray
    moved: np.ndarray
    first: np.ndarray
    last: np.ndarray
    dtype: str


def ratios(src: Source, name: str) -> RatioHistory | None:
    """None when nothing was recorded for the parameter."""
    width = bucket_width(src, HISTORY)
    per = src.frame(
        f"""SELECT step // {width} AS bucket, min(step) AS first, max(step) AS last, sum(moved) AS moved,
                   any_value(dtype) AS dtype
            FROM {{updates}} WHERE name = ? GROUP BY bucket ORDER BY bucket""",
        name,
    )
    bins = src.frame(
        f"""
        SELECT bucket, exponent, sum(n) AS n FROM (
            SELECT step // {width} AS bucket, unnest(ratio_hist) AS n,
                   ratio_lo + generate_subscripts(ratio_hist, 1) - 1 AS exponent
            FROM {{updates}} WHERE name = ?)
        GROUP BY ALL""",
        name,
    )
    if per.empty or bins.empty:
        return None
    low, high = int(bins["exponent"].min()), int(bins["exponent"].max())
    counts = np.zeros((high - low + 1, len(per)), dtype=np.int64)
    column = {bucket: j for j, bucket in enumerate(per["bucket"])}
    counts[bins["exponent"].to_numpy() - low, bins["bucket"].map(column).to_numpy()] = bins["n"].to_numpy()
    return RatioHistory(
        low=low,
        counts=counts,
        moved=per["moved"].to_numpy(dtype=np.int64),
        first=per["first"].to_numpy(dtype=np.int64),
        last=per["last"].to_numpy(dtype=np.int64),
        dtype=str(per["dtype"].iloc[-1]),
    )
