"""Merges the many small parts of a finished run into few sorted ones. Loses and doubles no row when it is
killed at any moment, or runs beside readers and another compaction.

The name of a merged part, `part-000000-000007.parquet`, says which parts it replaces, and it gets that name
in one rename when it is whole and on disk. From then on readers ignore the originals, which are deleted last.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ampscope.trace.encode import part_bytes
from ampscope.trace.files import write_atomic
from ampscope.trace.integrity import CheckedPart, check_parts, readable
from ampscope.trace.parts import PART_FILE, part_dir, part_name
from ampscope.trace.runinfo import read_run
from ampscope.trace.schema import TABLES, Table

if TYPE_CHECKING:
    import pyarrow as pa

TARGET_ROWS = 500_000
TARGET_BYTES = 48 << 20
"""A merged part is closed at this many rows or bytes: it bounds memory, and what damage to one file can
cost."""

SMALLEST_GAIN = 4
"""Fewer neighbouring parts than this are left as they are, unless they are all of their stream."""


@dataclass(frozen=True)
class Compacted:
    """What was done: parts merged, parts written in their place, and whether all was done (False: out of
    time, a live run, or another compaction at work)."""

    merged: int = 0
    written: int = 0
    finished: bool = True


def compact(run: str | Path, *, seconds: float | None = None) -> Compacted:
    """Compact the run in directory `run`, stopping after about `seconds`; calling it again goes on from
    there.

    Damaged parts are left alone. A live run is left alone. Raises AmpscopeError when `run` is no run, and
    OSError when the disk refuses; the trace is whole then too.
    """
    run_dir = Path(run)
    if read_run(run_dir).state == "live":
        return Compacted(finished=False)
    deadline = None if seconds is None else time.monotonic() + seconds
    with _only_one(run_dir) as alone:
        if not alone:
            return Compacted(finished=False)
        checked = check_parts(run_dir)
        _tidy(run_dir, checked)
        merged = written = 0
        for group in _groups(readable(checked)):
            if deadline is not None and time.monotonic() > deadline:
                return Compacted(merged, written, finished=False)
            _merge(run_dir, group)
            merged += len(group)
            written += 1
        return Compacted(merged, written)


@contextlib.contextmanager
def _only_one(run_dir: Path) -> Iterator[bool]:
    """True for the only compaction of a run on this machine; a lock that dies with its process."""
    try:
        import fcntl
    except ImportError:
        yield True
        return
    fd = os.open(run_dir, os.O_RDONLY)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        yield True
    finally:
        os.close(fd)


def _tidy(run_dir: Path, checked: list[CheckedPart]) -> None:
    """Delete what an earlier compaction, or a killed writer, left behind: originals of merged parts,
    temporaries."""
    kept = readable(checked)
    for c in checked:
        if any(k.part.replaces(c.part) for k in kept):
            c.part.path.unlink(missing_ok=True)
    for table in TABLES:
        for file in run_dir.glob(f"{table}/rank=*/part-*.tmp"):
            match = PART_FILE.fullmatch(file.name)
            if match is not None and match[4]:
                file.unlink(missing_ok=True)


def _groups(parts: list[CheckedPart]) -> Iterator[list[CheckedPart]]:
    """Neighbouring parts of one stream that fit one merged part. No group spans a damaged or missing part:
    the name of the merged part would then claim to replace it."""
    streams: defaultdict[tuple[str, int, int], list[CheckedPart]] = defaultdict(list)
    for c in parts:
        streams[c.part.stream].append(c)
    for members in streams.values():
        group: list[CheckedPart] = []
        for c in members:
            if group and (c.part.first != group[-1].part.last + 1 or not _fits(group, c)):
                yield from _worth_it(group, members)
                group = []
            group.append(c)
        yield from _worth_it(group, members)


def _fits(group: list[CheckedPart], more: CheckedPart) -> bool:
    rows = sum(c.rows for c in group) + more.rows
    size = sum(c.stamp[0] for c in group) + more.stamp[0]
    return rows <= TARGET_ROWS and size <= TARGET_BYTES


def _worth_it(group: list[CheckedPart], members: list[CheckedPart]) -> Iterator[list[CheckedPart]]:
    if len(group) >= SMALLEST_GAIN or (len(group) > 1 and len(group) == len(members)):
        yield group


def _merge(run_dir: Path, group: list[CheckedPart]) -> None:
    first, last = group[0].part, group[-1].part
    content = _sorted(TABLES[first.table], [c.part.path for c in group])
    folder = part_dir(run_dir, first.table, first.rank)
    write_atomic(folder / part_name(first.proc, first.first, last.last), part_bytes(content))
    for c in group:
        c.part.path.unlink(missing_ok=True)


def _sorted(table: Table, paths: list[Path]) -> pa.Table:
    """All rows of `paths` in the order that the schema names, rows that tie in the order in which they were
    written."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = [pq.ParquetFile(p).read() for p in paths]
    whole = pa.concat_tables(tables, promote_options="permissive").unify_dictionaries()
    whole = whole.combine_chunks()
    names = [name for name in table.sort if name in whole.column_names]
    keys = [
        *(_sortable(whole.column(name)) for name in names),
        pa.chunked_array([pa.array(np.arange(len(whole)))]),
    ]
    names.append("_")
    order = pa.Table.from_arrays(keys, names).sort_by([(name, "ascending") for name in names]).column("_")
    return whole.take(order)


def _sortable(values: pa.ChunkedArray[Any]) -> pa.ChunkedArray[Any]:
    import pyarrow as pa

    return values.cast(pa.string()) if pa.types.is_dictionary(values.type) else values
