"""The same tensors of two runs at the steps that both sampled: for the heat map of the Compare page.

What `ampscope compare` says of two runs comes from `ampscope.compare`; this draws the rest.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from ampscope.app.queries.source import Source

COMMON = 40
"""Most sampled steps that two runs are compared at."""


def common_steps(one: Source, two: Source, role: str) -> list[int]:
    """Sampled steps that both runs have of a role, at most `COMMON`, spread over them."""
    query = "SELECT DISTINCT step FROM {tensors} WHERE role = ?"
    both = sorted(set(one.frame(query, role)["step"]) & set(two.frame(query, role)["step"]))
    every = max(1, -(-len(both) // COMMON))
    return [int(step) for step in both[::every]]


def magnitudes(src: Source, role: str, at: list[int]) -> pd.DataFrame:
    """True root mean square and largest value: columns name, step, rms, amax, nonfinite."""
    marks = ", ".join(str(int(s)) for s in at) or "NULL"
    return src.frame(
        f"""
        SELECT name, step, sqrt(sum(sumsq / power(coalesce(nullif(scale, 0), 1), 2)) / nullif(sum(numel), 0)) AS rms,
               max(amax / coalesce(nullif(scale, 0), 1)) AS amax, sum(nan + posinf + neginf) AS nonfinite
        FROM {{tensors}} WHERE role = ? AND step IN ({marks})
          AND coalesce(stage, 'pre_unscale') IN ('pre_unscale', 'pre_clip')
        GROUP BY name, step""",
        role,
    )


def ratios(one: Source, two: Source, role: str) -> pd.DataFrame:
    """Columns name, step, one, two (true rms) and log2 (of two / one), for names and steps of both runs.

    Where one side alone is NaN or inf, log2 is infinite: they differ by more than any factor.
    """
    at = common_steps(one, two, role)
    a, b = magnitudes(one, role, at), magnitudes(two, role, at)
    both = a.merge(b, on=["name", "step"], suffixes=("_one", "_two"))
    with np.errstate(divide="ignore", invalid="ignore"):
        log2 = np.log2(both["rms_two"].to_numpy(dtype=float) / both["rms_one"].to_numpy(dtype=float))
    same_zero = (both["rms_one"] == 0) & (both["rms_two"] == 0)
    one_bad = (both["nonfinite_one"] > 0) != (both["nonfinite_two"] > 0)
    log2 = np.where(same_zero, 0.0, np.where(one_bad, np.inf, log2))
    return pd.DataFrame(
        {
            "name": both["name"],
            "step": both["step"],
            "one": both["rms_one"],
            "two": both["rms_two"],
            "log2": log2,
        }
    )
