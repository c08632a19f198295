"""Checks every part of a run before anything is read from it: whole by its checksum, and of the columns that
the schema names. A part that fails is left out and named. Changes nothing on disk.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ampscope.trace.checksum import problem
from ampscope.trace.files import read_json
from ampscope.trace.parts import Part, current_parts, list_parts, missing_numbers, part_dir, part_name
from ampscope.trace.records import ProcessInfo
from ampscope.trace.runinfo import PROCESS_DIR, RUN_FILE
from ampscope.trace.schema import TABLES

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class DamagedPart:
    """A file that was left out. `path` is relative to the run directory."""

    path: str
    why: str


@dataclass(frozen=True)
class Integrity:
    """What could be read of a run. `parts` and `rows` count what is readable; `missing` names parts that were
    written once and are gone."""

    parts: int = 0
    rows: int = 0
    bytes: int = 0
    damaged: tuple[DamagedPart, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def sound(self) -> bool:
        return not self.damaged and not self.missing

    @property
    def sentence(self) -> str:
        """One sentence for a reader of a report."""
        whole = f"{_count(self.parts, 'part')} whole, with {_count(self.rows, 'row')}"
        if self.sound:
            return f"{whole}; nothing is damaged or missing."
        lost = [f"{d.path} ({d.why})" for d in self.damaged] + [f"{m} (missing)" for m in self.missing]
        named = ", ".join(lost[:3]) + (f" and {len(lost) - 3} more" if len(lost) > 3 else "")
        return f"{_count(len(lost), 'file')} could not be read: {named}. {whole}."


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


@dataclass(frozen=True)
class CheckedPart:
    """A part and what was found in it. `columns` are those of the schema that it holds; `why` is None for a
    sound part. `stamp` is size, modification and change time: the same stamp needs no second check."""

    part: Part
    stamp: tuple[int, int, int]
    rows: int = 0
    columns: tuple[str, ...] = ()
    why: str | None = None


_TRIES = 20


def check_parts(run_dir: Path, known: Iterable[CheckedPart] = ()) -> list[CheckedPart]:
    """Every part of the run, checked; those in `known` that have not changed since are not read again."""
    before = {c.part.path: c for c in known}
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        for _ in range(_TRIES):
            parts = list_parts(run_dir)
            results = list(pool.map(_check, parts, [before.get(part.path) for part in parts]))
            checked = [c for c in results if c is not None]
            # Between the listing and the look at a part a compaction may have replaced it by one not listed.
            if len(checked) == len(parts) and list_parts(run_dir) == parts:
                break
            before = {c.part.path: c for c in checked}
    return checked


def readable(checked: Iterable[CheckedPart]) -> list[CheckedPart]:
    """The sound parts that no other sound part replaces, in order."""
    sound = {c.part.path: c for c in checked if c.why is None}
    return [sound[p.path] for p in current_parts(c.part for c in sound.values())]


def assess(run_dir: Path, checked: list[CheckedPart], processes: Iterable[ProcessInfo] = ()) -> Integrity:
    """The verdict over checked parts and the records beside them."""
    kept = readable(checked)
    damaged = [_damaged(run_dir, c) for c in checked if c.why is not None and not _covered(c.part, kept)]
    for record in (run_dir / RUN_FILE, *sorted((run_dir / PROCESS_DIR).glob("*.json"))):
        if read_json(record) is None:
            why = "cannot be read" if record.exists() else "is missing"
            damaged.append(DamagedPart(record.relative_to(run_dir).as_posix(), why))
    return Integrity(
        parts=len(kept),
        rows=sum(c.rows for c in kept),
        bytes=sum(c.stamp[0] for c in kept),
        damaged=tuple(damaged),
        missing=tuple(_missing(run_dir, [c.part for c in checked], processes)),
    )


def _check(part: Part, known: CheckedPart | None) -> CheckedPart | None:
    try:
        status = part.path.lstat()
    except FileNotFoundError:
        return None  # a compaction took it away since it was listed
    stamp = (status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    if known is not None and known.stamp == stamp:
        return known
    why = problem(part.path)
    if why is not None:
        return CheckedPart(part, stamp, why=why) if part.path.is_symlink() or part.path.exists() else None
    return _read_footer(part, stamp)


def _read_footer(part: Part, stamp: tuple[int, int, int]) -> CheckedPart:
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(part.path) as file:
            fields, rows = file.schema_arrow, file.metadata.num_rows
    except Exception as e:
        return CheckedPart(part, stamp, why=f"not a Parquet file that can be read: {str(e)[:200]}")
    columns = []
    for column in TABLES[part.table].columns:
        at = fields.get_all_field_indices(column.name)
        if not at:
            continue
        if len(at) > 1 or not _fits(column.type, fields.field(at[0]).type):
            return CheckedPart(part, stamp, why=f"foreign: its column {column.name} is not {column.type}")
        columns.append(column.name)
    return CheckedPart(part, stamp, rows, tuple(columns))


def _fits(kind: str, found: pa.DataType) -> bool:
    import pyarrow.types as pt

    if kind.startswith("list<"):
        listed: Any = found
        return bool(pt.is_list(found) or pt.is_large_list(found)) and _fits(kind[5:-1], listed.value_type)
    if kind in ("dict", "string"):
        inner: Any = found
        value = inner.value_type if pt.is_dictionary(found) else found
        return pt.is_string(value) or pt.is_large_string(value)
    if kind == "bool":
        return pt.is_boolean(found)
    return pt.is_floating(found) if kind == "float64" else pt.is_integer(found)


def _covered(part: Part, kept: list[CheckedPart]) -> bool:
    """A damaged original of a sound compacted part is only a leftover."""
    return any(c.part.replaces(part) for c in kept)


def _damaged(run_dir: Path, checked: CheckedPart) -> DamagedPart:
    return DamagedPart(checked.part.path.relative_to(run_dir).as_posix(), checked.why or "")


def _missing(run_dir: Path, parts: list[Part], processes: Iterable[ProcessInfo]) -> list[str]:
    highest: dict[tuple[str, int, int], int] = {}
    for part in parts:
        highest[part.stream] = max(highest.get(part.stream, 0), part.last + 1)
    gaps = missing_numbers(parts)
    for process in processes:
        for table, written in process.parts.items():
            stream = (table, process.rank, process.proc)
            if table in TABLES and type(written) is int:
                tail = range(highest.get(stream, 0), min(written, highest.get(stream, 0) + 1000))
                gaps.setdefault(stream, []).extend(tail)
    return [
        (part_dir(run_dir, table, rank) / part_name(proc, n)).relative_to(run_dir).as_posix()
        for (table, rank, proc), numbers in sorted(gaps.items())
        for n in numbers
    ]
