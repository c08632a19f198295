"""Names of part files and the rule that says which of them count; reads names only, never contents.

A part is `<run>/<table>/rank=K/part-000007.parquet`; processes after the first of a rank write
`part-p1-000007.parquet`. Compaction writes `part-000000-000007.parquet`, which replaces the parts it names.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ampscope.trace.schema import TABLES

PART_FILE = re.compile(r"part-(?:p(\d{1,9})-)?(\d{6,18})(?:-(\d{6,18}))?\.parquet(\.\d+\.tmp)?")
"""Full name of a part, or of one that was being written (group 4)."""

_RANK = re.compile(r"rank=(0|[1-9]\d{0,8})")


@dataclass(frozen=True)
class Part:
    """One part file: numbers `first` to `last` of `table` in process `proc` of `rank`."""

    path: Path
    table: str
    rank: int
    proc: int
    first: int
    last: int

    @property
    def stream(self) -> tuple[str, int, int]:
        """Parts of one stream are numbered without gaps."""
        return self.table, self.rank, self.proc

    def replaces(self, other: Part) -> bool:
        """True when `other` was merged into this one."""
        inside = self.first <= other.first and other.last <= self.last
        return inside and self.stream == other.stream and self.path != other.path


def part_name(proc: int, first: int, last: int | None = None) -> str:
    """File name of part `first`, or of the compacted parts `first` to `last`."""
    prefix = f"part-p{proc}-" if proc else "part-"
    return f"{prefix}{first:06d}.parquet" if last is None else f"{prefix}{first:06d}-{last:06d}.parquet"


def part_dir(run_dir: Path, table: str, rank: int) -> Path:
    return run_dir / table / f"rank={rank}"


def parse_part(path: Path, table: str, rank: int) -> Part | None:
    """The part that a path names; None for temporary and foreign files."""
    m = PART_FILE.fullmatch(path.name)
    if m is None or m[4]:
        return None
    first = int(m[2])
    return Part(path, table, rank, int(m[1] or 0), first, int(m[3]) if m[3] else first)


def list_parts(run_dir: Path) -> list[Part]:
    """Every part of a run in order of table, rank, process and number; those replaced are still listed."""
    found: list[Part] = []
    for table in TABLES:
        ranks = {int(m[1]): p for p in (run_dir / table).glob("rank=*") if (m := _RANK.fullmatch(p.name))}
        for rank in sorted(ranks):
            found += _parts_of(ranks[rank], table, rank)
    return found


def _parts_of(folder: Path, table: str, rank: int) -> Iterator[Part]:
    parsed = (parse_part(p, table, rank) for p in folder.iterdir())
    yield from sorted((p for p in parsed if p is not None), key=lambda p: (p.proc, p.first, -p.last))


def current_parts(parts: Iterable[Part]) -> list[Part]:
    """Those of `parts` that no other of them replaces. Give it only parts whose content is sound: a damaged
    compacted part must not hide the originals if they are still there."""
    kept: list[Part] = []
    widest: dict[tuple[str, int, int], Part] = {}
    for part in sorted(parts, key=lambda p: (*p.stream, p.first, -p.last)):
        holder = widest.get(part.stream)
        if holder is not None and holder.replaces(part):
            continue
        widest[part.stream] = part
        kept.append(part)
    return kept


def missing_numbers(parts: Iterable[Part]) -> dict[tuple[str, int, int], list[int]]:
    """Numbers between 0 and the highest that no part of the stream holds: parts that were removed."""
    held: defaultdict[tuple[str, int, int], list[Part]] = defaultdict(list)
    for part in parts:
        held[part.stream].append(part)
    gaps: dict[tuple[str, int, int], list[int]] = {}
    for stream, members in held.items():
        numbers: list[int] = []
        expected = 0
        for part in sorted(members, key=lambda p: (p.first, p.last)):
            numbers += range(expected, min(part.first, expected + 1000))
            expected = max(expected, part.last + 1)
        if numbers:
            gaps[stream] = numbers
    return gaps


def next_number(folder: Path, proc: int) -> int:
    """The first number above those that process `proc` used in `folder`: a part is never overwritten."""
    parsed = (parse_part(p, "", 0) for p in folder.iterdir())
    return max((p.last + 1 for p in parsed if p is not None and p.proc == proc), default=0)
