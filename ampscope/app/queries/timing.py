"""Where the time goes: phases of the steps, modules, profiled ops and kernels, and ampscope's own part."""

from __future__ import annotations

import pandas as pd

from ampscope.app.queries.source import Source
from ampscope.app.queries.steps import span

BARS = 240
"""Most bars of the phase chart."""

PHASES = ("data", "forward", "backward", "unscale", "optimizer")


def phases(src: Source) -> pd.DataFrame:
    """Mean seconds per step and phase: columns step (first of the bucket), last, data … optimizer, rest, total,
    own, level (the most that was collected in the bucket). Steps that were only counted have no phases."""
    first, last, n = span(src)
    width = max(1, -(-(last - first + 1) // BARS)) if n else 1
    sums = ", ".join(f"avg({p}) AS {p}" for p in (*PHASES, "total", "own"))
    per_step = ", ".join(f"sum(coalesce({p}_s, 0)) AS {p}" for p in PHASES)
    return src.frame(
        f"""
        WITH per AS (
            SELECT step, {per_step}, sum(duration_s) AS total, sum(own_s) AS own, max(level <> 'pulse') AS sampled
            FROM {{steps}} WHERE level IS DISTINCT FROM 'count' GROUP BY step)
        SELECT min(step) AS step, max(step) AS last, {sums}, bool_or(sampled) AS sampled,
               greatest(0, avg(total - data - forward - backward - unscale - optimizer)) AS rest
        FROM per GROUP BY step // {width} ORDER BY 1"""
    )


def step_times(src: Source) -> pd.DataFrame:
    """One row: p50, p95, plain (median of steps on which nothing was sampled), sampled, n. Seconds.

    The first two steps are left out where there are more than ten: they warm caches.
    """
    return src.frame(
        """
        WITH per AS (
            SELECT step, sum(duration_s) AS t, max(level NOT IN ('pulse', 'count')) AS sampled, count(*) OVER () AS n
            FROM {steps} GROUP BY step)
        SELECT median(t) AS p50, quantile_cont(t, 0.95) AS p95, median(t) FILTER (WHERE NOT sampled) AS plain,
               median(t) FILTER (WHERE sampled) AS sampled, count(*) AS n
        FROM per WHERE n <= 10 OR step >= (SELECT min(step) + 2 FROM per)"""
    )


def device_phases(src: Source) -> pd.DataFrame:
    """One row: mean device seconds of forward, backward, optimizer; nulls without a CUDA device."""
    return src.frame(
        """SELECT avg(forward_device_s) AS forward, avg(backward_device_s) AS backward,
                  avg(optimizer_device_s) AS optimizer FROM {steps}"""
    )


def modules(src: Source, limit: int = 400) -> pd.DataFrame:
    """Mean host seconds in forward per step and module, roots left out; most first.

    Columns name, class_name, forward_s, calls, autocast, given, made (dtypes).
    """
    return src.frame(
        """
        SELECT name, any_value(class_name) AS class_name, avg(forward_s) AS forward_s, avg(calls) AS calls,
               coalesce(any_value(autocast_dtype), 'off') AS autocast,
               any_value(array_to_string(list_distinct(in_dtypes), ', ')) AS given,
               any_value(array_to_string(list_distinct(out_dtypes), ', ')) AS made
        FROM {modules} WHERE NOT coalesce(is_root, false) GROUP BY name ORDER BY forward_s DESC NULLS LAST LIMIT ?""",
        limit,
    )


def kernels(src: Source, limit: int = 500) -> pd.DataFrame:
    """Profiled ops and kernels: columns name, kind, calls, self_s, total_s, shapes, tensor_core; most time first."""
    return src.frame(
        """
        SELECT name, kind, sum(calls) AS calls,
               sum(CASE WHEN kind = 'kernel' THEN self_device_s ELSE self_host_s END) AS self_s,
               sum(total_host_s) AS total_s, any_value(in_shapes) AS shapes, bool_or(tensor_core) AS tensor_core
        FROM {kernels} GROUP BY name, kind ORDER BY self_s DESC NULLS LAST LIMIT ?""",
        limit,
    )


def tensor_core_share(src: Source) -> float | None:
    """Share of device time spent in tensor-core kernels; None without profiled kernels."""
    found = src.value(
        """SELECT sum(self_device_s) FILTER (WHERE tensor_core) / nullif(sum(self_device_s), 0)
           FROM {kernels} WHERE kind = 'kernel'"""
    )
    has = src.value("SELECT count(*) FROM {kernels} WHERE kind = 'kernel' AND self_device_s > 0")
    return None if not has else float(found or 0.0)


def ledger(src: Source) -> pd.DataFrame:
    """ampscope's own cost by collector: columns collector, calls, host_s, device_s, elements, rows, why."""
    return src.frame(
        """SELECT collector, sum(calls) AS calls, sum(host_s) AS host_s, sum(device_s) AS device_s,
                  sum(elements) AS elements, sum(rows) AS rows, arg_max(why, step) AS why
           FROM {ledger} GROUP BY collector ORDER BY host_s DESC NULLS LAST"""
    )


def overhead(src: Source) -> float | None:
    """ampscope's own host time as a share of the wall time of all steps; None when it was not measured."""
    found = src.value("SELECT sum(own_s) / nullif(sum(duration_s), 0) FROM {steps}")
    return None if found is None else float(found)
