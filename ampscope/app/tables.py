"""Tables over dash-ag-grid community: columns by kind of number, cells as text, names as links to other views."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import dash_ag_grid as dag
import pandas as pd
from dash import html

ROW_HEIGHT = 30


@dataclass(frozen=True)
class Col:
    """One column. `kind` is text, number, count, si (131 k), share (0 … 1), seconds, bytes or power (of two).

    `link` names a column of the frame that holds the address that the cell leads to.
    """

    field: str
    title: str
    kind: str = "text"
    width: int | None = None
    link: str = ""
    tip: str = ""


def grid(frame: pd.DataFrame, columns: Sequence[Col], about: str, height: int | None = None) -> Any:
    """A sortable, filterable table; numbers sort as numbers and read in scientific notation where small.

    `height` in pixels at most; by default fourteen rows, then it scrolls.
    """
    kept = [c.field for c in columns] + [c.link for c in columns if c.link]
    rows = [dict(zip(kept, map(_plain, row), strict=True)) for row in frame[kept].itertuples(index=False)]
    needed = 34 + 2 + ROW_HEIGHT * min(max(len(rows), 1), 14) + 14
    table = dag.AgGrid(
        rowData=rows,
        columnDefs=[_definition(c) for c in columns],
        defaultColDef={"sortable": True, "filter": True, "resizable": True, "minWidth": 60},
        dangerously_allow_code=False,
        dashGridOptions={
            "theme": {"function": "ampscopeGridTheme(themeQuartz)"},
            "rowHeight": ROW_HEIGHT,
            "headerHeight": 34,
            "animateRows": False,
            "suppressCellFocus": False,
            "ensureDomOrder": True,
            "enableCellTextSelection": True,
            "domLayout": "normal",
            "tooltipShowDelay": 300,
        },
        style={"height": min(height or needed, needed), "width": "100%"},
        className="grid",
    )
    return html.Div(table, role="region", **{"aria-label": about})


def _plain(value: Any) -> Any:
    """A JSON value; infinities as text, since JSON has no such numbers; null where not measured."""
    if value is None or value is pd.NA:
        return None
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return value


def _definition(col: Col) -> dict[str, Any]:
    out: dict[str, Any] = {"field": col.field, "headerName": col.title}
    if col.tip:
        out["headerTooltip"] = col.tip
    if col.width:
        out["width"] = col.width
    elif col.kind != "text":
        out["width"] = 110
    if col.kind == "text":
        out["tooltipField"] = col.field
        if not col.width:
            out["flex"] = 1
            out["minWidth"] = 130
    else:
        out["type"] = "rightAligned"
        out["filter"] = "agNumberColumnFilter"
        out["valueFormatter"] = {"function": f"ampscopeFormat('{col.kind}', params.value)"}
        out["cellClass"] = "num ag-right-aligned-cell"
    if col.link:
        out["cellRenderer"] = "AmpscopeJump"
        out["cellRendererParams"] = {"link": col.link}
    return out
