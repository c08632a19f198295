"""Summary tables of a run: updates, activations near the limit, which precision did the work, time per phase."""

from __future__ import annotations

import math

from ampscope.report.model import Column, Fact, Table
from ampscope.report.query import Row, Stream, TraceView, fetch, first

ROWS = 40
HALF = "('float16', 'bfloat16')"

_UPDATES = """
SELECT name, any_value(dtype) AS dtype, count(DISTINCT segment) AS samples,
  CASE WHEN any_value(dtype) IN {half} THEN sum(unchanged) / nullif(sum(grad_nonzero), 0) END AS observed,
  sum(absorbed_fp16) / nullif(sum(moved), 0) AS fp16, sum(absorbed_bf16) / nullif(sum(moved), 0) AS bf16,
  sum(below_2_11) / nullif(sum(moved), 0) AS below,
  sqrt(sum(update_norm * update_norm) / nullif(sum(weight_norm * weight_norm), 0)) AS ratio
FROM updates WHERE {where} GROUP BY name
ORDER BY coalesce(observed, -1) DESC, coalesce(fp16, -1) DESC, name LIMIT {rows}
"""

_ACTIVATIONS = """
SELECT name, arg_max(dtype, amax) AS dtype, max(amax) AS amax, arg_max(step, amax) AS step,
  arg_min(amax, segment) AS started, arg_max(amax, segment) AS ended, CAST(sum(nan + posinf + neginf) AS BIGINT) AS bad
FROM tensors WHERE {where} AND role = 'activation' AND dtype IN {half} GROUP BY name
ORDER BY bad > 0 DESC, amax DESC, name LIMIT {rows}
"""

_PRECISION = """
WITH work AS (SELECT op, list_aggregate(in_dtypes, 'string_agg', ', ') AS dtypes, phase, flops FROM ops WHERE {where})
SELECT op, dtypes, phase, count(*) AS calls, sum(flops) AS flops,
  sum(flops) / nullif(sum(sum(flops)) OVER (), 0) AS part
FROM work GROUP BY op, dtypes, phase HAVING sum(flops) > 0 ORDER BY flops DESC, op, dtypes, phase LIMIT {rows}
"""

_PHASES = """
SELECT median(duration_s) AS whole, median(data_s) AS data, median(forward_s) AS forward,
  median(backward_s) AS backward, median(unscale_s) AS unscale, median(optimizer_s) AS optimizer,
  median(own_s) AS own, count(*) AS n
FROM steps WHERE {where} AND outcome IN ('stepped', 'skipped') AND coalesce(level, 'pulse') IN ('pulse', 'range')
"""

_LOW = """
SELECT sum(flops) FILTER (list_has_any(in_dtypes, ['float16', 'bfloat16'])) AS low, sum(flops) AS whole
FROM ops WHERE {where} AND flops > 0
"""


def tables(trace: TraceView, stream: Stream) -> list[Table]:
    """Every table that has rows, the most telling first."""
    makers = (_updates, _activations, _precision, _phases)
    return [table.without_blanks() for make in makers if (table := make(trace, stream)) is not None]


def _updates(trace: TraceView, stream: Stream) -> Table | None:
    rows = fetch(trace, _UPDATES.format(where=stream.where, half=HALF, rows=ROWS))
    if not rows:
        return None
    columns = (
        Column("parameter", "name"),
        Column("stored as", "name"),
        Column("absorbed (observed)", "share"),
        Column("would be in float16", "share"),
        Column("would be in bfloat16", "share"),
        Column("below 2^-11 of the weight", "share"),
        Column("update / weight", "number"),
    )
    note = (
        "Shares of the compared elements. Absorbed: stored bits did not change although the gradient was not zero; "
        "would be: what a weight stored in that type would lose (predicted)."
    )
    content = tuple(
        (r["name"], r["dtype"], r["observed"], r["fp16"], r["bf16"], r["below"], r["ratio"]) for r in rows
    )
    return Table(
        "Updates against weights", columns, content, _distinct(trace, stream, "updates", "true"), note
    )


def _activations(trace: TraceView, stream: Stream) -> Table | None:
    rows = fetch(trace, _ACTIVATIONS.format(where=stream.where, half=HALF, rows=10))
    if not rows:
        return None
    columns = (
        Column("module output", "name"),
        Column("dtype", "name"),
        Column("largest |x|", "number"),
        Column("at step", "number"),
        Column("headroom, binades", "number"),
        Column("first → last, binades", "number"),
        Column("NaN or inf", "number"),
    )
    content = tuple(
        (r["name"], r["dtype"], r["amax"], r["step"], _headroom(r), _growth(r), r["bad"]) for r in rows
    )
    condition = f"role = 'activation' AND dtype IN {HALF}"
    total = _distinct(trace, stream, "tensors", condition)
    note = (
        "Headroom is log2(largest finite value of the type / largest |x|); "
        "growth is from the first to the last sample."
    )
    return Table("Activations in half precision, nearest the limit first", columns, content, total, note)


def _headroom(row: Row) -> float | None:
    limit = 65504.0 if row["dtype"] == "float16" else 3.3895e38
    return round(math.log2(limit / row["amax"]), 2) if row["amax"] else None


def _growth(row: Row) -> float | None:
    started, ended = row["started"], row["ended"]
    return round(math.log2(ended / started), 2) if started and ended else None


def _precision(trace: TraceView, stream: Stream) -> Table | None:
    rows = fetch(trace, _PRECISION.format(where=stream.where, rows=20))
    if not rows:
        return None
    columns = (
        Column("op", "name"),
        Column("input types", "name"),
        Column("phase", "name"),
        Column("calls", "number"),
        Column("operations", "number"),
        Column("share", "share"),
    )
    content = tuple(
        (r["op"], _unique(r["dtypes"]), r["phase"], r["calls"], r["flops"], r["part"]) for r in rows
    )
    note = "Matrix multiplications and convolutions of the census steps, by floating-point operations."
    return Table("Which precision does the work", columns, content, len(rows), note)


def _unique(dtypes: str | None) -> str:
    return ", ".join(dict.fromkeys((dtypes or "").split(", ")))


def _phases(trace: TraceView, stream: Stream) -> Table | None:
    row = first(trace, _PHASES.format(where=stream.where))
    if not row.get("n") or not row.get("whole"):
        return None
    names = (
        ("data and other code", "data"),
        ("forward", "forward"),
        ("backward", "backward"),
        ("unscale and clip", "unscale"),
        ("optimizer", "optimizer"),
        ("the recorder, within or between these", "own"),
        ("whole step", "whole"),
    )
    content = tuple((name, row[key], row[key] / row["whole"]) for name, key in names if row[key] is not None)
    columns = (
        Column("phase", "text"),
        Column("median host time", "seconds"),
        Column("share of the step", "share"),
    )
    note = f"Over {row['n']} steps without census or profiling."
    return Table("Time per phase", columns, content, len(content), note)


def _distinct(trace: TraceView, stream: Stream, table: str, condition: str) -> int:
    row = first(trace, f"SELECT count(DISTINCT name) AS n FROM {table} WHERE {stream.where} AND {condition}")
    return int(row.get("n", 0))


def facts(trace: TraceView, stream: Stream) -> list[Fact]:
    """Absorbed updates, share of work in low precision, step time."""
    makers = (_absorbed, _low_precision, _step_time)
    return [fact for make in makers if (fact := make(trace, stream)) is not None]


def _absorbed(trace: TraceView, stream: Stream) -> Fact | None:
    half = first(
        trace,
        f"SELECT sum(unchanged) / nullif(sum(grad_nonzero), 0) AS part FROM updates "
        f"WHERE {stream.where} AND dtype IN {HALF} AND coalesce(lr, 1) > 0",
    )
    if half.get("part") is not None:
        detail = "of the elements with a gradient, in parameters stored in half precision"
        return Fact("updates absorbed", half["part"], "share", detail, "observed")
    row = first(
        trace, f"SELECT sum(absorbed_bf16) / nullif(sum(moved), 0) AS part FROM updates WHERE {stream.where}"
    )
    if row.get("part") is None:
        return None
    detail = "of the elements that move; the float32 weights keep them"
    return Fact("updates that bfloat16 would lose", row["part"], "share", detail, "predicted")


def _low_precision(trace: TraceView, stream: Stream) -> Fact | None:
    row = first(trace, _LOW.format(where=stream.where))
    if not row.get("whole"):
        return None
    detail = "of matmul and convolution work, by floating-point operations"
    return Fact("work in low precision", (row["low"] or 0.0) / row["whole"], "share", detail, "observed")


def _step_time(trace: TraceView, stream: Stream) -> Fact | None:
    row = first(trace, _PHASES.format(where=stream.where))
    if not row.get("whole"):
        return None
    return Fact("step time", row["whole"], "seconds", f"median of {row['n']} steps", "observed")
