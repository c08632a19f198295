"""The course of a run: loss, loss scale, skipped steps, learning rate. Long runs are thinned in SQL, never averaged."""

from __future__ import annotations

import pandas as pd

from ampscope.app.queries.source import Source

POINTS = 1500
"""Most points of one line."""

MARKS = 1000
"""Most single marks (skipped steps, non-finite losses); the newest stay."""


def span(src: Source) -> tuple[int, int, int]:
    """(first step, last step, segments); (0, 0, 0) for a run without steps."""
    row = src.frame("SELECT min(step) AS first, max(step) AS last, count(*) AS n FROM {steps}").iloc[0]
    return (int(row["first"]), int(row["last"]), int(row["n"])) if row["n"] else (0, 0, 0)


def loss(src: Source) -> pd.DataFrame:
    """Columns step, loss: finite losses; of each bucket of a long run the smallest and the largest."""
    return src.frame(
        f"""
        WITH rows AS (
            SELECT step, segment, loss, (row_number() OVER (ORDER BY step, segment) - 1)
                   * {POINTS // 2} // greatest(count(*) OVER (), {POINTS // 2}) AS bucket
            FROM {{steps}} WHERE loss IS NOT NULL AND isfinite(loss))
        SELECT step, loss FROM rows
        QUALIFY row_number() OVER (PARTITION BY bucket ORDER BY loss, step) = 1
             OR row_number() OVER (PARTITION BY bucket ORDER BY loss DESC, step DESC) = 1
        ORDER BY step, segment"""
    )


def bad_losses(src: Source) -> pd.DataFrame:
    """Columns step, kind (NaN, inf or -inf): the losses that are no number.

    DuckDB 2.0 takes isnan() of a Parquet column for false when the statistics of the file say so, and they leave
    NaN out; isfinite() and isinf() it computes.
    """
    return src.frame(
        f"""
        SELECT step, CASE WHEN NOT isinf(loss) THEN 'NaN' WHEN loss > 0 THEN 'inf' ELSE '-inf' END AS kind
        FROM {{steps}} WHERE loss IS NOT NULL AND NOT isfinite(loss)
        ORDER BY step DESC LIMIT {MARKS}"""
    )


def scale(src: Source) -> pd.DataFrame:
    """Columns scaler, step, scale: the scale in force, at every step where it changed and at both ends.

    Nothing is lost by it: a loss scale is constant in between. Falls back on `steps` where no scaler row is.
    """
    rows = src.frame(_CHANGES.replace("SOURCE", "SELECT scaler, step, segment, scale FROM {scaler}"))
    if rows.empty:
        rows = src.frame(
            _CHANGES.replace("SOURCE", "SELECT 'loss scale' AS scaler, step, segment, scale FROM {steps}")
        )
    return rows


_CHANGES = f"""
    WITH rows AS (SOURCE), marked AS (
        SELECT *, scale IS DISTINCT FROM lag(scale) OVER w OR scale IS DISTINCT FROM lead(scale) OVER w AS edge
        FROM rows WHERE scale IS NOT NULL WINDOW w AS (PARTITION BY scaler ORDER BY step, segment))
    SELECT scaler, step, scale FROM marked WHERE edge ORDER BY scaler, step, segment LIMIT {20 * POINTS}"""


def skips(src: Source) -> pd.DataFrame:
    """Columns step, opt, scale: skipped optimizer steps, oldest first."""
    return src.frame(
        f"""
        SELECT * FROM (SELECT step, opt, scale FROM {{steps}} WHERE skipped ORDER BY step DESC LIMIT {MARKS})
        ORDER BY step"""
    )


def skip_count(src: Source) -> int:
    return int(src.value("SELECT count(*) FROM {steps} WHERE skipped") or 0)


def learning_rate(src: Source) -> pd.DataFrame:
    """Columns opt, step, lr, at every step where it changed by more than 0.1 %."""
    return src.frame(
        f"""
        SELECT opt, step, lr FROM (
            SELECT *, (row_number() OVER (PARTITION BY opt ORDER BY step, segment) - 1)
                   % greatest(1, count(*) OVER () // {POINTS}) = 0 AS kept
            FROM {{steps}} WHERE lr IS NOT NULL) WHERE kept ORDER BY opt, step"""
    )


def blame(src: Source, limit: int = 200) -> pd.DataFrame:
    """Skipped steps with the gradient nearest the loss that was not finite, newest first.

    Columns step, scale, culprit, tensors (how many were bad), nan, inf, stale.
    """
    return src.frame(
        """
        WITH bad AS (
            SELECT step, segment, arg_min(name, "order") AS culprit, count(*) AS tensors, sum(nan) AS nan,
                   sum(posinf) + sum(neginf) AS inf, bool_or(stale) AS stale
            FROM {nonfinite} WHERE role = 'grad' GROUP BY ALL)
        SELECT s.step, s.scale, bad.culprit, bad.tensors, bad.nan, bad.inf, bad.stale
        FROM {steps} s LEFT JOIN bad USING (step, segment)
        WHERE s.skipped ORDER BY s.step DESC LIMIT ?""",
        limit,
    )


def policy(src: Source) -> pd.DataFrame:
    """One row per GradScaler: its policy, first and last scale, skips, steps seen."""
    return src.frame(
        """
        SELECT scaler, any_value(init_scale) AS init_scale, any_value(growth_factor) AS growth_factor,
               any_value(backoff_factor) AS backoff_factor, any_value(growth_interval) AS growth_interval,
               min(scale) AS lowest, max(scale) AS highest, arg_max(coalesce(scale_after, scale), segment) AS last,
               arg_min(scale, segment) AS first,
               count(*) FILTER (WHERE skipped) AS skipped, count(*) AS updates
        FROM {scaler} GROUP BY scaler ORDER BY scaler"""
    )
