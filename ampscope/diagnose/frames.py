"""Rows of a frame as plain Python values, for judgements that go through them one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

Row = dict[str, Any]


def records(frame: pd.DataFrame) -> list[Row]:
    """The rows in order, by column name; a missing cell is None, or NaN in a column of float64."""
    names = [str(name) for name in frame.columns]
    columns = [_cells(column) for _, column in frame.items()]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _cells(column: pd.Series[Any]) -> list[Any]:
    cells = column.tolist()
    return [None if cell is pd.NA else cell for cell in cells] if column.hasnans else cells


def null(value: Any) -> bool:
    """A missing cell; NaN, which a frame does not tell from it, as well."""
    if isinstance(value, float | np.floating):
        return bool(value != value)
    return value is None or value is pd.NA or value is pd.NaT


def items(value: Any) -> list[Any]:
    """The elements of a list cell; empty for a missing one."""
    return list(value) if isinstance(value, list | tuple | np.ndarray) else []


def texts(value: Any) -> tuple[str, ...]:
    """The elements of a list cell as text."""
    return tuple(str(v) for v in items(value))


def numbers(value: Any) -> tuple[float, ...]:
    """The elements of a list cell as floats."""
    return tuple(float(v) for v in items(value))


def number(value: Any, default: float = 0.0) -> float:
    return default if null(value) else float(value)


def real(value: Any) -> float | None:
    return None if null(value) else float(value)


def text(value: Any) -> str | None:
    return None if null(value) else str(value)


def whole(value: Any) -> int | None:
    return None if null(value) else int(value)
