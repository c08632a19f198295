from __future__ import annotations

import subprocess
import sys

import pytest

from ampscope.trace.schema import KEY, TABLES, Table

TYPES = {
    "int16",
    "int32",
    "int64",
    "float64",
    "bool",
    "string",
    "dict",
    "list<int64>",
    "list<float64>",
    "list<string>",
}
EVERY_TABLE = pytest.mark.parametrize("table", TABLES.values(), ids=list(TABLES))


@EVERY_TABLE
def test_columns_are_unique_typed_and_explained(table: Table) -> None:
    assert len(set(table.column_names)) == len(table.columns)
    assert "rank" not in table.column_names, "rank is the partition"
    assert table.columns[: len(KEY)] == KEY
    for column in table.columns:
        assert column.type in TYPES
        assert column.doc.strip()
        assert column.name.isidentifier()


@EVERY_TABLE
def test_the_sort_order_names_columns(table: Table) -> None:
    assert table.sort
    assert set(table.sort) <= set(table.column_names)


def test_it_imports_the_standard_library_only() -> None:
    code = "import sys, ampscope.trace.schema; print([m for m in ('numpy', 'pyarrow', 'torch') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
