"""Rows of a frame as plain Python values, for judgements that go through them one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

Row = dict[str, Any]


def records(frame: pd.DataFrame) -> list[Row]:
    """The rows in order, by column name."""
    return [{str(k): v for k, v in row.items()} for row in frame.to_dict("records")]


def null(value: Any) -> bool:
    """A missing cell; NaN, which a frame does not tell from it, as well."""
    return value is None or value is pd.NA or value is pd.NaT or bool(np.isscalar(value) and value != value)


def items(value: Any) -> list[Any]:
    """The elements of a list cell; empty for a missing one."""
    return list(value) if isinstance(value, list | tuple | np.ndarray) else []


def number(value: Any, default: float = 0.0) -> float:
    return default if null(value) else float(value)


def text(value: Any) -> str | None:
    return None if null(value) else str(value)


def whole(value: Any) -> int | None:
    return None if null(value) else int(value)
