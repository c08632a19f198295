"""The census: which op ran in which dtype, in which module, what was cast, and where values stopped being finite."""

from __future__ import annotations

import pandas as pd

from ampscope.app.queries.source import Source

LIMIT = 2000
"""Most rows of a table."""

_MATMUL = "regexp_matches(op, '(mm|matmul|linear|conv|attention|lstm|gru)')"

PLACE = "regexp_replace(file, '^.*[/\\\\]', '') || ':' || line"
"""SQL: `train.py:41`; null where no line is known."""

COMPUTE = f"(flops IS NOT NULL OR {_MATMUL})"
"""SQL: the op is of the kind that low precision is for."""


def segments(src: Source) -> pd.DataFrame:
    """Columns step, segment, level, n (ops): the segments of which ops were recorded, in order."""
    return src.frame(
        """SELECT o.step, o.segment, any_value(s.level) AS level, count(*) AS n
           FROM {ops} o LEFT JOIN {steps} s USING (step, segment) GROUP BY o.step, o.segment
           ORDER BY o.step, o.segment"""
    )


def table(src: Source, step: int) -> pd.DataFrame:
    """Ops of one step by (op, dtypes, module, phase, line), most host time first.

    Columns op, given, made (dtypes joined by a comma), module, phase, calls, host_s, out_bytes, flops, cast,
    out_amax, nonfinite, place, shapes.
    """
    return src.frame(
        f"""
        SELECT op, {_joined("in_dtypes")} AS given, {_joined("out_dtypes")} AS made, coalesce(module, '') AS module,
               phase, count(*) AS calls, sum(host_s) AS host_s, sum(out_bytes) AS out_bytes, sum(flops) AS flops,
               any_value(cast) AS cast, max(out_amax) AS out_amax, sum(out_nonfinite) AS nonfinite,
               any_value({PLACE}) AS place,
               any_value(array_to_string(in_shapes, ' · ')) AS shapes
        FROM {{ops}} WHERE step = ? GROUP BY ALL ORDER BY host_s DESC NULLS LAST, calls DESC LIMIT {LIMIT}""".replace(
            "any_value(cast)", 'any_value("cast")'
        ),
        step,
    )


def _joined(column: str) -> str:
    return f"coalesce(array_to_string(list_sort(list_distinct({column})), ', '), '')"


def dtypes_by_module(src: Source, step: int) -> pd.DataFrame:
    """Columns module, dtype (of the output), calls, host_s, flops: matmul-like work where there is some in the
    module, otherwise all of its ops that are no casts."""
    return src.frame(
        f"""
        WITH work AS (
            SELECT coalesce(module, '') AS module, coalesce(out_dtypes[1], 'none') AS dtype, host_s, flops,
                   {COMPUTE} AS heavy, bool_or({COMPUTE}) OVER (PARTITION BY coalesce(module, '')) AS has_heavy
            FROM {{ops}} WHERE step = ? AND "cast" IS NULL AND regexp_matches(coalesce(out_dtypes[1], ''), 'float'))
        SELECT module, dtype, count(*) AS calls, sum(host_s) AS host_s, sum(flops) AS flops
        FROM work WHERE heavy OR NOT has_heavy GROUP BY ALL""",
        step,
    )


def casts(src: Source, step: int) -> pd.DataFrame:
    """Casts of one step by what is cast and where: columns source, module, given, made, kind, phase, calls,
    bytes, host_s, place; most bytes first."""
    return src.frame(
        f"""
        SELECT coalesce(cast_source, 'an activation') AS source, coalesce(module, '') AS module,
               coalesce(in_dtypes[1], '') AS given, coalesce(out_dtypes[1], '') AS made, "cast" AS kind, phase,
               count(*) AS calls, sum(out_bytes) AS bytes, sum(host_s) AS host_s,
               any_value({PLACE}) AS place
        FROM {{ops}} WHERE step = ? AND "cast" IS NOT NULL GROUP BY ALL
        ORDER BY bytes DESC NULLS LAST LIMIT {LIMIT}""",
        step,
    )


def transitions(src: Source, limit: int = 200) -> pd.DataFrame:
    """Ops whose inputs were finite and whose output was not, first ones first.

    Columns step, op, module, phase, given, made, in_amax, out_nonfinite, shadow_nonfinite, place.
    """
    return src.frame(
        f"""
        SELECT step, op, coalesce(module, '') AS module, phase, {_joined("in_dtypes")} AS given,
               {_joined("out_dtypes")} AS made, in_amax, out_nonfinite, shadow_nonfinite, shadow_amax,
               {PLACE} AS place
        FROM {{ops}} WHERE in_nonfinite = 0 AND out_nonfinite > 0 ORDER BY step, segment, seq LIMIT ?""",
        limit,
    )


def low_precision_share(src: Source) -> pd.DataFrame:
    """One row over all census segments: host_s and flops of matmul-like work, and the part of it in half or less.

    Columns host_s, low_host_s, flops, low_flops, steps; nulls when nothing was recorded.
    """
    low = "list_bool_or(list_transform(out_dtypes, lambda d: regexp_matches(d, 'float16|float8|float4')))"
    return src.frame(
        f"""
        SELECT sum(host_s) AS host_s, sum(host_s) FILTER (WHERE low) AS low_host_s, sum(flops) AS flops,
               sum(flops) FILTER (WHERE low) AS low_flops, count(DISTINCT step) AS steps
        FROM (SELECT *, {low} AS low FROM {{ops}} WHERE {COMPUTE})"""
    )
