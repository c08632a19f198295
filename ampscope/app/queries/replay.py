"""What a replay of dynamic loss scaling needs: per update of the scaler, the largest gradient and what happened."""

from __future__ import annotations

import pandas as pd

from ampscope.app.queries.source import Source
from ampscope.app.queries.tensors import GRADIENTS

ROUNDS = 200_000
"""Most updates of the scaler that are replayed, from the start of the run."""


def rounds(src: Source) -> pd.DataFrame:
    """One row per update of the busiest GradScaler, or per optimizer step of a run without one, in order.

    Columns step (of its last segment), scale (in force; null without a scaler), skipped, broken (the loss was
    NaN or inf, which no scale mends), amax (largest finite true gradient; null when none was read).
    """
    return src.frame(
        f"""
        WITH busiest AS (SELECT scaler FROM {{scaler}} GROUP BY scaler ORDER BY count(*) DESC, scaler LIMIT 1),
        ends AS (
            SELECT step, segment, scale, coalesce(found_inf, skipped, false) AS skipped, scale_after
            FROM {{scaler}} SEMI JOIN busiest USING (scaler) WHERE scale IS NOT NULL
            UNION ALL
            SELECT step, segment, NULL, false, 1.0 FROM {{steps}}
            WHERE outcome = 'stepped' AND NOT EXISTS (SELECT 1 FROM {{scaler}} WHERE scale IS NOT NULL)),
        numbered AS (
            -- Several optimizers under one scaler: their segments belong to the update that ends them.
            SELECT *, CASE WHEN count(scale_after) OVER () = 0 THEN row_number() OVER w
                      ELSE count(scale_after) OVER (w ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) END AS round
            FROM ends WINDOW w AS (ORDER BY step, segment)),
        read AS (
            SELECT step, segment, max(amax / coalesce(nullif(scale, 0), 1)) AS amax
            FROM {{tensors}} WHERE {GRADIENTS} GROUP BY step, segment),
        losses AS (SELECT step, segment, NOT isfinite(loss) AS broken FROM {{steps}} WHERE loss IS NOT NULL)
        SELECT max(step) AS step, max(scale) AS scale, bool_or(skipped) AS skipped,
               coalesce(bool_or(broken), false) AS broken, max(amax) AS amax
        FROM numbered LEFT JOIN read USING (step, segment) LEFT JOIN losses USING (step, segment)
        GROUP BY round ORDER BY round LIMIT {ROUNDS}"""
    )


def obstacle(src: Source) -> str:
    """Why there is nothing to replay: steps (none was recorded), broken (every loss was NaN or inf), unread (no
    gradient was); "" where there is something. Quick, unlike `rounds`."""
    row = src.frame(
        """SELECT count(*) AS steps, coalesce(bool_and(loss IS NOT NULL AND NOT isfinite(loss)), false) AS broken
           FROM {steps} WHERE outcome IN ('stepped', 'skipped')"""
    ).iloc[0]
    if not row["steps"]:
        return "steps"
    if row["broken"]:
        return "broken"
    read = src.frame(
        "SELECT 1 FROM {tensors} WHERE role IN ('grad', 'activation_grad') AND amax IS NOT NULL LIMIT 1"
    )
    return "unread" if read.empty else ""


def runs_of_rounds(found: pd.DataFrame) -> pd.DataFrame:
    """`rounds` with equal neighbours joined: columns step (of the first), n, scale, skipped, broken, read, amax.

    read: amax was read at that round and the step was not skipped (of a skipped one the largest is inf or NaN);
    elsewhere amax is the larger of the readings before and after, and null only when nothing was ever read.
    """
    read = (found["amax"].notna() & ~found["skipped"] & ~found["broken"]).to_numpy(dtype=bool)
    known = found["amax"].astype(float).where(read)
    near = pd.concat([known.ffill(), known.bfill()], axis=1).max(axis=1)
    rows = pd.DataFrame(
        {
            "step": found["step"].astype("int64"),
            "scale": found["scale"].astype(float),
            "skipped": found["skipped"].astype(bool),
            "broken": found["broken"].astype(bool),
            "read": read,
            "amax": known.fillna(near),
        }
    )
    same = ~rows["read"] & ~rows["read"].shift(fill_value=True)
    for name in ("scale", "skipped", "broken", "amax"):
        before = rows[name].shift()
        same &= (rows[name] == before) | (rows[name].isna() & before.isna())
    same &= rows["step"] == rows["step"].shift() + 1
    return rows.assign(n=1).groupby((~same).cumsum(), as_index=False).agg(
        {"step": "first", "n": "sum", **dict.fromkeys(("scale", "skipped", "broken", "read", "amax"), "first")}
    )  # fmt: skip
