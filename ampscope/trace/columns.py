"""Writes `docs/trace.md` from the schema: `python -m ampscope.trace.columns > docs/trace.md`."""

from __future__ import annotations

import sys

from ampscope.trace.schema import KEY, SCHEMA_VERSION, TABLES
from ampscope.trace.table import Column, Table

_HEAD = """\
# The trace on disk

<!-- Written by `python -m ampscope.trace.columns`. Change ampscope/trace/schema.py instead. -->

Schema {version}. A run is a directory of plain Parquet files: DuckDB, pandas, Polars, Spark or Trino read it as it is.

    ampscope-runs/train-20261129-110204-9080/
      run.json                             command, versions, settings, start, end, exit status
      processes/rank=0-proc=0.json         one per training process: machine, devices, versions
      steps/rank=0/part-000000.parquet     one directory per table below, one per rank in it
      steps/rank=0/part-p1-000000.parquet  the second training process of a rank
      COMPLETE                             absent while the run is live, or when it was cut off

```sql
SELECT step, loss FROM 'ampscope-runs/latest/steps/*/*.parquet' ORDER BY step
```

or `ampscope.open_trace().sql("SELECT step, loss FROM steps")`, which has every table with all its columns.

**Writing.** A part appears under its name only when it is whole and on disk. A flush happens every 5 s, later every
hundredth of the run time so far, never more than 60 s apart, and whenever 20 000 rows wait: a crash costs what was
recorded since the last one.

**Checking.** Each part holds the CRC-32 of all its bytes in its footer, under `ampscope.crc32` (computed with
`00000000` in its place). A part that fails it is left out and named; the others are read.

**Compaction.** After the end, parts are merged and sorted. `part-000000-000007.parquet` replaces the parts 0 to 7 of
its directory: where both are there, a compaction was interrupted, and the merged part is the one that counts.

**Versions.** A reader reads every minor version of its own major version and refuses a newer major version.

In every table null means *not measured*. NaN and infinities are values, and kept.
"""


def markdown() -> str:
    """The whole page."""
    parts = [_HEAD.format(version=".".join(map(str, SCHEMA_VERSION)))]
    parts.append("## In every table\n")
    parts.append("`rank` comes from the name of the directory.\n")
    parts.append(_rows(KEY))
    for table in TABLES.values():
        parts.append(_section(table))
    return "\n".join(parts)


def _section(table: Table) -> str:
    own = tuple(c for c in table.columns if c not in KEY)
    order = ", ".join(f"`{name}`" for name in table.sort)
    return f"## {table.name}\n\n{table.doc} Sorted by {order} once compacted.\n\n{_rows(own)}"


def _rows(columns: tuple[Column, ...]) -> str:
    lines = ["| column | type | unit | meaning |", "|---|---|---|---|"]
    for c in columns:
        kind = "string" if c.type == "dict" else c.type
        lines.append(f"| `{c.name}` | {_cell(kind)} | {_cell(c.unit)} | {_cell(c.doc)} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


if __name__ == "__main__":
    sys.stdout.write(markdown())
