from __future__ import annotations

import io
import math
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ampscope.trace.checksum import problem
from ampscope.trace.encode import BATCH, INT_BITS, Misfits, arrow_table, part_bytes
from ampscope.trace.schema import SCHEMA_VERSION, TABLES
from ampscope.trace.table import Column, Table

ALL_TYPES = Table(
    "all",
    "",
    tuple(
        Column(t.replace("<", "_").replace(">", ""), t, "", "")
        for t in (
            *("int16", "int32", "int64", "float64", "bool", "string", "dict"),
            *("list<int64>", "list<float64>", "list<string>"),
        )
    ),
    (),
)

TEXT = st.text("a.é𝄞\0\n'", max_size=6)
VALUES: dict[str, st.SearchStrategy[object]] = {
    **{name: st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for name, bits in INT_BITS.items()},
    "float64": st.floats(),
    "bool": st.booleans(),
    "string": TEXT,
    "dict": TEXT,
    "list<int64>": st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=4),
    "list<float64>": st.lists(st.none() | st.floats(), max_size=4),
    "list<string>": st.lists(st.none() | TEXT, max_size=4),
}
ROWS = st.lists(
    st.fixed_dictionaries({}, optional={c.name: st.none() | VALUES[c.type] for c in ALL_TYPES.columns}),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(ROWS)
def test_every_value_comes_back_from_parquet(rows: list[dict[str, object]]) -> None:
    misfits = Misfits()
    table = arrow_table(ALL_TYPES, rows, misfits)
    table.validate(full=True)
    read = pq.ParquetFile(io.BytesIO(part_bytes(table))).read().to_pylist()
    assert not misfits.counts
    for got, row in zip(read, rows, strict=True):
        for column in ALL_TYPES.columns:
            # repr tells NaN from None, -0.0 from 0.0 and True from 1
            assert repr(got[column.name]) == repr(row.get(column.name)), column.type


def test_more_rows_than_a_batch_share_one_dictionary() -> None:
    rows = [{"name": f"layer.{i % 3}", "step": i} for i in range(2 * BATCH + 5)]
    table = arrow_table(TABLES["tensors"], rows, Misfits())
    assert table.num_rows == len(rows)
    read = pq.ParquetFile(io.BytesIO(part_bytes(table))).read()
    assert read.column("name").to_pylist() == [row["name"] for row in rows]
    assert read.column("step").to_pylist() == list(range(len(rows)))


@pytest.mark.parametrize(
    ("column", "value", "stored"),
    [
        ("step", np.int64(7), 7),
        ("step", 7.0, 7),
        ("step", True, 1),
        ("line", np.int32(3), 3),
        ("amax", np.float32(0.5), 0.5),
        ("amax", 3, 3.0),
        ("amax", Fraction(1, 4), 0.25),
        ("amax", np.float64("nan"), math.nan),
        ("scaled", np.True_, True),
        ("scaled", 0, False),
        ("dtype", torch.float16, "torch.float16"),
        ("name", os.fsdecode(b"\xff.py"), "?.py"),
        ("hist", (1, 2), [1, 2]),
        ("hist", np.array([1, 2]), [1, 2]),
        ("hist", range(3), [0, 1, 2]),
    ],
)
def test_what_means_the_same_is_stored(column: str, value: object, stored: object) -> None:
    name = "calls" if column == "line" else "tensors"
    misfits = Misfits()
    table = arrow_table(TABLES[name], [{column: value}], misfits)
    assert repr(table.column(column).to_pylist()) == repr([stored])
    assert not misfits.counts


class Hostile:
    """Raises on everything that a conversion may ask of it."""

    __hash__ = None  # type: ignore[assignment]

    def __float__(self) -> float:
        raise RuntimeError

    __int__ = __index__ = __iter__ = __str__ = __float__  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("step", "seven"),
        ("step", 7.5),
        ("step", 2**63),
        ("step", math.nan),
        ("step", math.inf),
        ("hist_lo", -40_000),
        ("amax", "big"),
        ("amax", 10**400),
        ("amax", torch.tensor(1.0)),
        ("amax", [1.0]),
        ("scaled", 2),
        ("scaled", "yes"),
        ("hist", 5),
        ("hist", "12"),
        ("hist", torch.tensor([1, 2])),
        ("dtype", torch.tensor(1.0)),
        ("dtype", Hostile()),
        ("step", Hostile()),
        ("hist", Hostile()),
    ],
)
def test_what_does_not_fit_is_null_and_counted_and_costs_no_row(column: str, value: object) -> None:
    misfits = Misfits()
    rows: list[dict[str, object]] = [
        {"name": "a", column: value},
        {"name": "b"},
        {"name": "c", column: value},
    ]
    table = arrow_table(TABLES["tensors"], rows, misfits)
    assert table.column(column).to_pylist() == [None, None, None]
    assert table.column("name").to_pylist() == ["a", "b", "c"]
    assert misfits.counts == {f"tensors.{column}": 2}
    assert misfits.example == {f"tensors.{column}": type(value).__name__}


def test_a_bad_item_of_a_list_is_null_and_the_list_stays() -> None:
    misfits = Misfits()
    table = arrow_table(TABLES["tensors"], [{"hist": [1, "x", 3]}], misfits)
    assert table.column("hist").to_pylist() == [[1, None, 3]]
    assert misfits.counts == {"tensors.hist": 1}


def test_a_part_is_sealed_compressed_and_says_its_schema(tmp_path: Path) -> None:
    data = part_bytes(arrow_table(TABLES["steps"], [{"step": i} for i in range(1000)], Misfits()))
    (tmp_path / "part").write_bytes(data)
    assert problem(tmp_path / "part") is None
    meta = pq.ParquetFile(io.BytesIO(data)).metadata
    assert (meta.metadata or {})[b"ampscope.schema"].decode() == ".".join(map(str, SCHEMA_VERSION))
    assert meta.row_group(0).column(0).compression == "ZSTD"


def test_an_empty_part_can_be_read() -> None:
    table = arrow_table(TABLES["steps"], [], Misfits())
    assert pq.ParquetFile(io.BytesIO(part_bytes(table))).read().num_rows == 0


def test_encoding_imports_no_pandas() -> None:
    code = """
import sys
from ampscope.trace.encode import Misfits, arrow_table, part_bytes
from ampscope.trace.schema import SCHEMA_VERSION, TABLES
for name, table in TABLES.items():
    row = {c.name: ["a"] if c.type == "list<string>" else [1] if "list" in c.type else 1 for c in table.columns}
    misfits = Misfits()
    part_bytes(arrow_table(table, [row, {}], misfits))
    assert not misfits.counts, misfits
print([m for m in ("pandas", "duckdb", "dash", "plotly", "torch") if m in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
