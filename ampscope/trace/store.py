"""Encodes rows into parts and puts them on disk, again and again where the disk refuses. Knows nothing of
threads but that it is used by one only: that of the trace writer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from errno import ENOENT
from pathlib import Path

from ampscope.trace.encode import Misfits, arrow_table, part_bytes
from ampscope.trace.files import write_atomic
from ampscope.trace.parts import next_number, part_dir, part_name
from ampscope.trace.schema import TABLES

Row = Mapping[str, object]


@dataclass(frozen=True)
class Encoded:
    """A part that waits for the disk."""

    table: str
    rows: int
    data: bytes


class PartStore:
    """Parts of one process. `report(kind, message, exception)` is told of every fault; it decides what is
    said."""

    def __init__(
        self, run_dir: Path, rank: int, proc: int, report: Callable[[object, str, BaseException], None]
    ) -> None:
        self.run_dir = run_dir
        self.rank = rank
        self.proc = proc
        self.parts: dict[str, int] = {}
        """Number of the next part per table; with a fresh stream, how many were written."""
        self.rows = 0
        self.bytes = 0
        self.waiting: deque[Encoded] = deque()
        self._report = report
        self._misfits = Misfits()
        self._told: set[str] = set()

    @property
    def rows_waiting(self) -> int:
        return sum(e.rows for e in self.waiting)

    def encode(self, table: str, rows: Sequence[Row]) -> int:
        """Make `rows` wait for `store`, as one part. Returns how many rows could not be encoded: none or
        all."""
        try:
            self.waiting.append(
                Encoded(table, len(rows), part_bytes(arrow_table(TABLES[table], rows, self._misfits)))
            )
        except Exception as e:
            self._report(type(e), f"{len(rows)} rows of {table} could not be encoded and are lost", e)
            return len(rows)
        return 0

    def store(self) -> int:
        """Try to write every waiting part; those that fail wait on, in order. Returns the rows that were
        written."""
        failed: deque[Encoded] = deque()
        before = self.rows
        while self.waiting:
            part = self.waiting.popleft()
            try:
                self._write(part)
            except Exception as e:
                failed.append(part)
                kind = e.errno if isinstance(e, OSError) else type(e)
                self._report(
                    kind, f"A part of {part.table} could not be written; it is kept and tried again", e
                )
        self.waiting = failed
        return self.rows - before

    def drop_beyond(self, max_rows: int) -> int:
        """Drop the oldest waiting parts until at most `max_rows` rows wait. Returns the rows dropped."""
        excess = dropped = self.rows_waiting
        while self.waiting and excess > max_rows:
            excess -= self.waiting.popleft().rows
        return dropped - excess

    def new_misfits(self) -> list[str]:
        """One sentence per column that met a value which does not fit it, the first time that it does."""
        fresh = [name for name in self._misfits.counts if name not in self._told]
        self._told.update(fresh)
        return [
            f"Values of {name} were left out: {self._misfits.example[name]} does not fit the column."
            for name in fresh
        ]

    def _write(self, part: Encoded) -> None:
        # A run directory that was moved or deleted is not made again: half a trace would appear in its place.
        if not self.run_dir.is_dir():
            raise FileNotFoundError(ENOENT, "the run directory is gone", str(self.run_dir))
        folder = part_dir(self.run_dir, part.table, self.rank)
        folder.mkdir(parents=True, exist_ok=True)
        number = self.parts.get(part.table)
        if number is None:
            number = next_number(folder, self.proc)
        write_atomic(folder / part_name(self.proc, number), part.data)
        self.parts[part.table] = number + 1
        self.rows += part.rows
        self.bytes += len(part.data)
