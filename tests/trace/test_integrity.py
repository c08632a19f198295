from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ampscope.trace.checksum import BLANK, SEAL_KEY, seal
from ampscope.trace.integrity import DamagedPart, Integrity, assess, check_parts, readable
from ampscope.trace.parts import part_name
from ampscope.trace.records import ProcessInfo

PutPart = Callable[..., Path]


def rows(*steps: int) -> list[dict[str, object]]:
    return [{"step": s} for s in steps]


def look(run_dir: Path, *processes: ProcessInfo) -> Integrity:
    return assess(run_dir, check_parts(run_dir), processes)


def put_foreign(path: Path, table: pa.Table) -> None:
    """A sealed part with columns of the test's own."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({SEAL_KEY: BLANK})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(seal(sink.getvalue().to_pybytes()))


def test_a_whole_run(run_dir: Path, put_part: PutPart) -> None:
    assert look(run_dir) == Integrity()
    paths = [put_part("steps", rows(0, 1)), put_part("steps", rows(2)), put_part("ops", rows(0), rank=3)]
    found = look(run_dir)
    assert (found.parts, found.rows, found.damaged, found.missing) == (3, 4, (), ())
    assert found.bytes == sum(p.stat().st_size for p in paths)
    assert found.sound
    assert found.sentence == "3 parts whole, with 4 rows; nothing is damaged or missing."


def test_damage_costs_the_part_and_names_it(run_dir: Path, put_part: PutPart) -> None:
    bad = put_part("steps", rows(0))
    put_part("steps", rows(1))
    bad.write_bytes(bad.read_bytes()[:-30])
    found = look(run_dir)
    assert (found.parts, found.rows) == (1, 1)
    assert [d.path for d in found.damaged] == ["steps/rank=0/part-000000.parquet"]
    assert found.sentence == (
        "1 file could not be read: steps/rank=0/part-000000.parquet "
        "(truncated: it does not end as a Parquet file). 1 part whole, with 1 row."
    )


def test_lost_parts_are_noticed_in_the_middle_and_at_the_end(run_dir: Path, put_part: PutPart) -> None:
    paths = [put_part("steps", rows(i)) for i in range(4)]
    process = ProcessInfo(parts={"steps": 4, "ops": 1, "no_such_table": 3})
    put_part("ops", rows(0))
    assert look(run_dir, process).missing == ()
    paths[1].unlink()
    paths[3].unlink()
    assert look(run_dir).missing == ("steps/rank=0/part-000001.parquet",)
    assert look(run_dir, process).missing == (
        "steps/rank=0/part-000001.parquet",
        "steps/rank=0/part-000003.parquet",
    )
    assert look(run_dir, replace(process, rank=1)).missing[-1] == "steps/rank=1/part-000003.parquet"


def test_records_beside_the_parts_are_checked(run_dir: Path, put_part: PutPart) -> None:
    put_part("steps", rows(0))
    (run_dir / "processes").mkdir()
    (run_dir / "processes" / "rank=0-proc=0.json").write_text("{")
    (run_dir / "run.json").unlink()
    assert look(run_dir).damaged == (
        DamagedPart("run.json", "is missing"),
        DamagedPart("processes/rank=0-proc=0.json", "cannot be read"),
    )


def test_a_merged_part_hides_its_originals_only_while_it_is_sound(run_dir: Path, put_part: PutPart) -> None:
    first, second = put_part("steps", rows(0)), put_part("steps", rows(1))
    merged = put_part("steps", rows(0, 1)).rename(first.with_name(part_name(0, 0, 1)))
    assert [c.part.path for c in readable(check_parts(run_dir))] == [merged]
    first.write_bytes(b"")
    assert look(run_dir).damaged == (), "a leftover that nobody needs"
    merged.write_bytes(merged.read_bytes()[:-1])
    found = look(run_dir)
    assert (found.parts, found.rows) == (1, 1)
    assert {d.path.rpartition("/")[2] for d in found.damaged} == {first.name, merged.name}
    assert [c.part.path for c in readable(check_parts(run_dir))] == [second]


@pytest.mark.parametrize(
    ("column", "why"),
    [
        (pa.array(["x"]), "foreign: its column step is not int64"),
        (pa.array([[1]]), "foreign: its column step is not int64"),
        (pa.array([1.5]), "foreign: its column step is not int64"),
    ],
)
def test_a_foreign_type_is_named(run_dir: Path, column: pa.Array[pa.Scalar[pa.DataType]], why: str) -> None:
    put_foreign(run_dir / "steps" / "rank=0" / part_name(0, 0), pa.table({"step": column}))
    assert [d.why for d in look(run_dir).damaged] == [why]


def test_a_narrower_integer_and_an_unknown_column_are_no_fault(run_dir: Path) -> None:
    table = pa.table({"step": pa.array([1], pa.int16()), "later": pa.array(["x"])})
    put_foreign(run_dir / "steps" / "rank=0" / part_name(0, 0), table)
    assert [c.columns for c in readable(check_parts(run_dir))] == [("step",)]


def test_a_sealed_file_that_is_no_parquet_is_named(run_dir: Path) -> None:
    path = run_dir / "steps" / "rank=0" / part_name(0, 0)
    path.parent.mkdir(parents=True)
    footer = b"not thrift" + SEAL_KEY.encode() + b"\x18\x08" + BLANK.encode()
    path.write_bytes(seal(b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"))
    assert look(run_dir).damaged[0].why.startswith("not a Parquet file that can be read: ")


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda p: os.symlink("/dev/zero", p)])
def test_what_only_looks_like_a_part_is_not_opened(run_dir: Path, make: object) -> None:
    path = run_dir / "steps" / "rank=0" / part_name(0, 0)
    path.parent.mkdir(parents=True)
    assert callable(make)
    make(path)
    assert [d.why for d in look(run_dir).damaged] == ["not a regular file"]


def test_an_unchanged_part_is_not_read_again(run_dir: Path, put_part: PutPart) -> None:
    old = put_part("steps", rows(0))
    first = check_parts(run_dir)
    new = put_part("steps", rows(1))
    again = check_parts(run_dir, first)
    assert again[0] is first[0]
    assert [c.part.path for c in again] == [old, new]
    data = bytearray(old.read_bytes())
    data[10] ^= 1
    old.write_bytes(data)
    assert [c.why is None for c in check_parts(run_dir, again)] == [False, True]
