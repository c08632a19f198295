"""Two runs joined by step and by name: losses, true magnitudes of the same tensors, the first tensor that differs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from ampscope.app.queries import steps, summary, timing
from ampscope.app.queries.source import Source

COMMON = 40
"""Most sampled steps that two runs are compared at."""


@dataclass(frozen=True)
class Headline:
    """One run in a few numbers; None where not recorded."""

    steps: int
    skipped: int
    step_time: float | None
    last_loss: float | None
    precision: str
    scale: float | None
    memory: float | None
    low_precision: float | None
    overhead: float | None


def headline(src: Source) -> Headline:
    _, _, n = steps.span(src)
    row = src.frame(
        """SELECT avg(loss) FILTER (WHERE isfinite(loss) AND step > (SELECT max(step) - 10 FROM {steps})) AS loss,
                  mode(autocast_dtype) AS dtype, arg_max(scale, step) AS scale,
                  coalesce(max(device_allocated), max(host_rss)) AS memory FROM {steps}"""
    ).iloc[0]
    return Headline(
        steps=n,
        skipped=steps.skip_count(src),
        step_time=summary.step_time(src).value,
        last_loss=_float(row["loss"]),
        precision=str(row["dtype"]) if isinstance(row["dtype"], str) else "float32, no autocast",
        scale=_float(row["scale"]),
        memory=_float(row["memory"]),
        low_precision=summary.low_precision(src).value,
        overhead=timing.overhead(src),
    )


def _float(value: object) -> float | None:
    return None if value is None or pd.isna(value) else float(value)  # type: ignore[call-overload,arg-type]


def losses(one: Source, two: Source) -> pd.DataFrame:
    """Columns step, one, two: mean finite loss at the steps that both runs have."""
    query = "SELECT step, avg(loss) AS loss FROM {steps} WHERE isfinite(loss) GROUP BY step"
    a, b = one.frame(query), two.frame(query)
    both = a.merge(b, on="step", suffixes=("_one", "_two")).sort_values("step")
    return both.rename(columns={"loss_one": "one", "loss_two": "two"})


def loss_distance(both: pd.DataFrame) -> float | None:
    """Mean |one - two| over mean |one|; None without a common step."""
    if both.empty:
        return None
    size = float(both["one"].abs().mean())
    return float((both["one"] - both["two"]).abs().mean()) / size if size > 0 else None


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


@dataclass(frozen=True)
class Divergence:
    """The first tensor whose magnitude differs, in step order and then in forward order."""

    name: str
    step: int
    one: float
    two: float


def first_divergence(found: pd.DataFrame, names: list[str], factor: float = 1.05) -> Divergence | None:
    """The first of `names` (forward order) at the first step where the rms differs by more than `factor`."""
    off = found[found["log2"].abs() > np.log2(factor)]
    if off.empty:
        return None
    rank = {name: i for i, name in enumerate(names)}
    row = off.assign(rank=off["name"].map(rank)).sort_values(["step", "rank"]).iloc[0]
    return Divergence(str(row["name"]), int(row["step"]), float(row["one"]), float(row["two"]))
