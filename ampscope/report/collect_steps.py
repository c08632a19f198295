"""Loss scale, loss and skipped steps of a run, thinned out in SQL so that every extreme and every skip stays."""

from __future__ import annotations

from ampscope.report.model import Bucket, Skip, Timeline
from ampscope.report.query import Stream, TraceView, fetch, first

POINTS = 400
SKIPS = 40

_BUCKETS = """
SELECT (step - {low}) // {width} AS b, min(step) AS first, max(step) AS last,
       arg_max(scale, segment) AS scale, min(scale) FILTER (isfinite(scale)) AS scale_low,
       max(scale) FILTER (isfinite(scale)) AS scale_high, avg(loss) FILTER (isfinite(loss)) AS loss,
       count(*) FILTER (loss IS NOT NULL AND NOT isfinite(loss)) AS bad_loss,
       count(*) FILTER (skipped) AS skipped
FROM steps WHERE {where} GROUP BY b ORDER BY b
"""

_SKIPS = """
WITH blamed AS (
  SELECT step, segment, arg_min(name, "order") AS culprit,
         arg_min(nan + posinf + neginf, "order") AS bad_elements, count(DISTINCT name) AS bad_tensors
  FROM nonfinite WHERE {where} AND role = 'grad' AND nan + posinf + neginf > 0 GROUP BY ALL),
after AS (
  SELECT step, segment, arg_max(scale_after, segment) AS scale_after FROM scaler WHERE {where} GROUP BY ALL)
SELECT s.step, s.scale, a.scale_after, b.culprit, b.bad_elements, coalesce(b.bad_tensors, 0) AS bad_tensors, s.opt
FROM steps s LEFT JOIN blamed b USING (step, segment) LEFT JOIN after a USING (step, segment)
WHERE {where_s} AND s.skipped ORDER BY s.segment LIMIT {limit}
"""


def timeline(trace: TraceView, stream: Stream) -> Timeline:
    """At most POINTS buckets of equal width. Of several optimizers that step in turn, the busiest is shown."""
    opts = fetch(
        trace,
        f"SELECT opt, count(*) AS n FROM steps WHERE {stream.where} AND opt IS NOT NULL "
        "GROUP BY opt ORDER BY n DESC, opt",
    )
    where = stream.where
    shown = [stream.name] if stream.name else []
    if len(opts) > 1:
        where += " AND opt = $opt"
        shown.append(f"optimizer {opts[0]['opt']} of {len(opts)}")
    params = {"opt": opts[0]["opt"]} if len(opts) > 1 else None
    span = first(trace, f"SELECT min(step) AS low, max(step) AS high FROM steps WHERE {where}", params)
    if span.get("low") is None:
        return Timeline()
    width = max(1, -(-(span["high"] - span["low"] + 1) // POINTS))
    rows = fetch(trace, _BUCKETS.format(low=span["low"], width=width, where=where), params)
    buckets = tuple(
        Bucket(
            r["first"],
            r["last"],
            r["scale"],
            r["scale_low"],
            r["scale_high"],
            r["loss"],
            r["bad_loss"],
            r["skipped"],
        )
        for r in rows
    )
    if width > 1:
        shown.append(f"one point for {width} steps")
    return Timeline(buckets, exact=width == 1, source=", ".join(shown))


def skips(trace: TraceView, stream: Stream) -> tuple[tuple[Skip, ...], int]:
    """The first SKIPS skipped steps with the tensor to blame, and how many there were."""
    rows = fetch(trace, _SKIPS.format(where=stream.where, where_s=stream.of("s"), limit=SKIPS))
    total = first(trace, f"SELECT count(*) AS n FROM steps WHERE {stream.where} AND skipped")
    found = tuple(
        Skip(
            r["step"],
            r["scale"],
            r["scale_after"],
            r["culprit"],
            r["bad_elements"],
            r["bad_tensors"],
            r["opt"],
        )
        for r in rows
    )
    return found, int(total.get("n", 0))
