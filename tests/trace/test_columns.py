from __future__ import annotations

from pathlib import Path

from ampscope.trace.columns import markdown
from ampscope.trace.schema import TABLES

PAGE = Path(__file__).parents[2] / "docs" / "trace.md"


def test_the_page_in_the_docs_is_current() -> None:
    assert PAGE.read_text() == markdown(), "run: python -m ampscope.trace.columns > docs/trace.md"


def test_every_column_of_every_table_is_on_the_page() -> None:
    sections = markdown().split("\n## ")
    by_title = {s.split("\n", 1)[0]: s for s in sections}
    shared = by_title["In every table"]
    for table in TABLES.values():
        for column in table.columns:
            assert f"| `{column.name}` |" in by_title[table.name] + shared


def test_every_row_has_four_cells() -> None:
    rows = [line for line in markdown().splitlines() if line.startswith("| `")]
    assert rows
    for row in rows:
        assert row.replace("\\|", "").count("|") == 5, row
