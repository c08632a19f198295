"""Tables: numbers stay numbers, what JSON cannot say becomes text, no cell becomes HTML."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from ampscope.app import tables
from tests.app import walk

FRAME = pd.DataFrame(
    {
        "name": ["<b>w</b>", None],
        "x": [3e-8, np.inf],
        "n": pd.array([5, None], dtype="Int64"),
        "flag": [True, False],
        "href": ["/updates?param=w", ""],
    }
)
COLUMNS = [
    tables.Col("name", "parameter", link="href"),
    tables.Col("x", "value", "number"),
    tables.Col("n", "count", "count", 90, tip="how many"),
    tables.Col("flag", "flag"),
]


def props() -> dict[str, Any]:
    region, grid = list(walk.nodes(tables.grid(FRAME, COLUMNS, "About")))
    assert region["props"]["aria-label"] == "About"
    found: dict[str, Any] = grid["props"]
    return found


def test_rows_are_json() -> None:
    assert props()["rowData"] == [
        {"name": "<b>w</b>", "x": 3e-8, "n": 5, "flag": "yes", "href": "/updates?param=w"},
        {"name": None, "x": "inf", "n": None, "flag": "no", "href": ""},
    ]


def test_nothing_is_evaluated_or_rendered() -> None:
    shown = props()
    assert shown["dangerously_allow_code"] is False
    assert "markdown" not in str(shown["columnDefs"])


def test_kinds_of_columns() -> None:
    name, x, n, flag = props()["columnDefs"]
    assert name["cellRenderer"] == "AmpscopeJump"
    assert name["cellRendererParams"] == {"link": "href"}
    assert x["valueFormatter"] == {"function": "ampscopeFormat('number', params.value)"}
    assert n["headerTooltip"] == "how many"
    assert n["width"] == 90
    assert "ag-right" in n["cellClass"]
    assert "valueFormatter" not in flag


def test_a_long_table_scrolls() -> None:
    long = pd.DataFrame({"x": np.arange(5000.0)})
    grid = list(walk.nodes(tables.grid(long, [tables.Col("x", "x", "number")], "x")))[1]
    assert grid["props"]["style"]["height"] < 600
