"""What a table of a trace is made of, and how one is written down in `schema.py`. Standard library only."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """One column. `type` is one of int16, int32, int64, float64, bool, string, dict (a dictionary-encoded
    string), list<int64>, list<float64>, list<string>. Every column may be null: null means not measured."""

    name: str
    type: str
    unit: str
    doc: str


@dataclass(frozen=True)
class Table:
    """One table: a folder of Parquet parts below `<run>/<name>/rank=K/`."""

    name: str
    doc: str
    columns: tuple[Column, ...]
    sort: tuple[str, ...]

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.columns)


def columns(text: str) -> Iterator[Column]:
    """One column per line: name, type, [unit] or none, meaning; an indented line continues the meaning."""
    for line in re.sub(r"\n +", " ", text.strip()).splitlines():
        match = re.fullmatch(r"(\w+) (\S+) (?:\[(.+?)\] )?(.+)", line)
        if match is None:
            raise ValueError(f"not a column: {line}")
        yield Column(match[1], match[2], match[3] or "", match[4])
