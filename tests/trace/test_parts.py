from __future__ import annotations

from pathlib import Path

import pytest

from ampscope.trace.parts import (
    Part,
    current_parts,
    list_parts,
    missing_numbers,
    next_number,
    parse_part,
    part_name,
)


def part(first: int, last: int | None = None, proc: int = 0, rank: int = 0) -> Part:
    path = Path(f"run/steps/rank={rank}") / part_name(proc, first, last)
    return Part(path, "steps", rank, proc, first, first if last is None else last)


@pytest.mark.parametrize(
    ("proc", "first", "last", "name"),
    [
        (0, 0, None, "part-000000.parquet"),
        (1, 7, None, "part-p1-000007.parquet"),
        (0, 0, 12, "part-000000-000012.parquet"),
        (13, 1_234_567, 2_000_000, "part-p13-1234567-2000000.parquet"),
    ],
)
def test_names_are_read_back(proc: int, first: int, last: int | None, name: str) -> None:
    assert part_name(proc, first, last) == name
    parsed = parse_part(Path(name), "steps", 3)
    assert parsed == Part(Path(name), "steps", 3, proc, first, first if last is None else last)


@pytest.mark.parametrize(
    "name",
    [
        "part-000000.parquet.41.tmp",
        "part-0.parquet",
        "part-000000.parquet~",
        "x.parquet",
        "part-p-000000.parquet",
    ],
)
def test_other_files_are_no_parts(name: str) -> None:
    assert parse_part(Path(name), "steps", 0) is None


def test_listing_orders_by_rank_process_and_number_and_skips_what_is_foreign(tmp_path: Path) -> None:
    for name in ("rank=10/part-000000", "rank=2/part-000001", "rank=2/part-000000", "rank=2/part-p1-000000"):
        file = tmp_path / "steps" / f"{name}.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    for name in (
        "steps/rank=x/part-000000.parquet",
        "other/rank=0/part-000000.parquet",
        "steps/rank=2/notes.txt",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = [(p.rank, p.proc, p.first) for p in list_parts(tmp_path)]
    assert found == [(2, 0, 0), (2, 0, 1), (2, 1, 0), (10, 0, 0)]


def test_a_merged_part_replaces_what_its_name_spans() -> None:
    merged = part(0, 3)
    parts = [part(0), part(3), part(4), part(2, proc=1), part(2, rank=1), merged, part(1, 2)]
    kept = current_parts(parts)
    assert {p.path.name for p in kept if p.rank == 0 and p.proc == 0} == {merged.path.name, part(4).path.name}
    assert part(2, proc=1) in kept
    assert part(2, rank=1) in kept


def test_gaps_are_missing_parts() -> None:
    assert missing_numbers([part(0), part(1, 3), part(2), part(4)]) == {}
    assert missing_numbers([part(1), part(3, 4), part(7)]) == {("steps", 0, 0): [0, 2, 5, 6]}


def test_the_next_number_is_above_every_one_used(tmp_path: Path) -> None:
    assert next_number(tmp_path, 0) == 0
    for name in (part_name(0, 0, 4), part_name(0, 2), part_name(1, 9)):
        (tmp_path / name).touch()
    assert next_number(tmp_path, 0) == 5
    assert next_number(tmp_path, 1) == 10
