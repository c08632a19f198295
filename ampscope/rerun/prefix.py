"""The first steps of a recorded run, as a trace of its own: what the rules would have seen by then."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pandas as pd

from ampscope.diagnose.signals import TraceView
from ampscope.trace.integrity import Integrity
from ampscope.trace.records import RunInfo
from ampscope.trace.schema import TABLES


class Prefix:
    """A view of `trace` without the rows of step `steps` and later. Rows of no step stay."""

    def __init__(self, trace: TraceView, steps: int) -> None:
        self.trace = trace
        self.steps = steps
        self._tables = ", ".join(
            f'"{name}" AS (SELECT * FROM main."{name}" WHERE step IS NULL OR step < {int(steps)})'
            for name in TABLES
        )

    @property
    def info(self) -> RunInfo:
        return self.trace.info

    @property
    def integrity(self) -> Integrity:
        return self.trace.integrity

    def sql(self, query: str, params: Sequence[Any] | None = None) -> pd.DataFrame:
        """The result of one SELECT over the rows of the first steps."""
        own = re.match(r"\s*WITH\s+(RECURSIVE\s+)?", query, re.IGNORECASE)
        if own is None:
            return self.trace.sql(f"WITH {self._tables} {query}", params)
        keyword = "WITH RECURSIVE" if own.group(1) else "WITH"
        return self.trace.sql(f"{keyword} {self._tables}, {query[own.end() :]}", params)
