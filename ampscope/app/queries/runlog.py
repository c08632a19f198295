"""What the Run page lists: rows per table, rare events, devices and dtypes of parameters."""

from __future__ import annotations

import pandas as pd

from ampscope.app.queries.ops import PLACE
from ampscope.app.queries.source import Source
from ampscope.trace.schema import TABLES


def row_counts(src: Source) -> dict[str, int]:
    """Rows of each table of this process."""
    return {name: int(src.value(f"SELECT count(*) FROM {{{name}}}") or 0) for name in TABLES}


def events(src: Source, limit: int = 500) -> pd.DataFrame:
    """Columns t, step, event, level, subject, message, place; the newest `limit`, oldest first."""
    return src.frame(
        f"""SELECT * FROM (
               SELECT t, step, event, level, subject, message, {PLACE} AS place
               FROM {{events}} ORDER BY t DESC NULLS LAST LIMIT ?) ORDER BY t""",
        limit,
    )


def parameters(src: Source) -> pd.DataFrame:
    """One row per stored dtype: columns dtype, parameters, elements, trainable, optimizers."""
    return src.frame(
        """
        WITH newest AS (
            SELECT * FROM {params} QUALIFY row_number() OVER (PARTITION BY name ORDER BY segment DESC) = 1)
        SELECT dtype, count(*) AS parameters, sum(numel) AS elements,
               count(*) FILTER (WHERE requires_grad) AS trainable,
               string_agg(DISTINCT owner, ', ') AS optimizers
        FROM newest GROUP BY dtype ORDER BY elements DESC"""
    )


def processes(src: Source) -> list[tuple[int, int]]:
    """(rank, proc) of every process with rows, whichever `src` is restricted to."""
    rows = src.frame("SELECT DISTINCT rank, proc FROM steps ORDER BY rank, proc")
    return [(int(rank), int(proc)) for rank, proc in zip(rows["rank"], rows["proc"], strict=True)]
