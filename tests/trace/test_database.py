from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pandas as pd
import pytest

from ampscope.errors import AmpscopeError
from ampscope.trace.database import Database, sql_type
from ampscope.trace.integrity import check_parts
from ampscope.trace.schema import TABLES

PutPart = Callable[..., Path]


@pytest.fixture
def database(run_dir: Path, put_part: PutPart) -> Iterator[Database]:
    put_part("steps", [{"step": 0, "loss": float("nan"), "skipped": True}, {"step": 1}])
    put_part("steps", [{"step": 0}], rank=12)
    put_part("tensors", [{"name": "w", "hist": [1, 2], "amax": float("inf")}, {"name": None, "hist": None}])
    opened = Database(check_parts(run_dir))
    yield opened
    opened.close()


def test_every_table_is_there_with_every_column_and_its_type(database: Database) -> None:
    for table in TABLES.values():
        described = database.query(f'DESCRIBE "{table.name}"')
        got = dict(zip(described.column_name, described.column_type, strict=True))
        assert got == {"rank": "INTEGER", **{c.name: sql_type(c.type) for c in table.columns}}
        assert len(database.query(f'SELECT * FROM "{table.name}"')) == {"steps": 3, "tensors": 2}.get(
            table.name, 0
        )


def test_rank_comes_from_the_directory(database: Database) -> None:
    ranks = database.query("SELECT rank, count(*) n FROM steps GROUP BY rank ORDER BY rank")
    assert ranks.to_dict("list") == {"rank": [0, 12], "n": [2, 1]}
    assert len(database.query("SELECT * FROM steps WHERE rank = 12")) == 1


def test_values_arrive_as_documented(database: Database) -> None:
    tensors = database.query("SELECT hist, amax, name, step FROM tensors")
    assert list(tensors["hist"][0]) == [1, 2]
    assert tensors["hist"][1] is None
    assert tensors.amax[0] == float("inf")
    assert pd.isna(tensors.name[1])
    assert str(tensors.step.dtype) == "Int64"
    nan = database.query(
        "SELECT isnan(loss) AS nan, loss IS NULL AS missing FROM steps WHERE rank = 0 ORDER BY step"
    )
    assert nan.astype(object).to_numpy().tolist() == [[True, False], [pd.NA, True]]


@pytest.mark.parametrize(
    ("condition", "steps"),
    [
        ("isnan(loss)", [1]),
        ("NOT isnan(loss)", [0, 2, 3]),
        ("isfinite(loss)", [0, 2]),
        ("NOT isfinite(loss)", [1, 3]),
        ("isinf(loss)", [3]),
        ("loss = 'nan'::DOUBLE", [1]),
        ("loss > 100", [1, 3]),
        ("NOT (loss < 100)", [1, 3]),
        ("loss IS NULL", [4]),
    ],
)
def test_no_reader_prunes_a_value_that_is_not_finite(
    run_dir: Path, put_part: PutPart, condition: str, steps: list[int]
) -> None:
    # Parquet statistics leave NaN out, and DuckDB 2.0 drops by them rows, files and whole conditions.
    first, second = [2.0, float("nan"), 2.0], [float("inf"), None]
    put_part("steps", [{"step": i, "loss": x} for i, x in enumerate(first)])
    put_part("steps", [{"step": i, "loss": x} for i, x in enumerate(second, len(first))])
    opened = Database(check_parts(run_dir))
    where = opened.query(f"SELECT step FROM steps WHERE {condition} ORDER BY step")
    counted = opened.query(f"SELECT count(*) FILTER (WHERE {condition}) AS n FROM steps")
    summed = opened.query(f"SELECT sum(CASE WHEN {condition} THEN 1 ELSE 0 END) AS n FROM steps")
    opened.close()
    assert where.step.tolist() == steps
    assert int(counted.n[0]) == int(summed.n[0]) == len(steps)


def test_parameters_by_position_and_by_name(database: Database) -> None:
    assert len(database.query("SELECT * FROM steps WHERE step = ?", [1])) == 1
    assert len(database.query("SELECT * FROM steps WHERE step = $step", {"step": 0})) == 2
    hostile = "x'; DROP VIEW steps; --"
    assert len(database.query("SELECT * FROM steps WHERE opt = ?", [hostile])) == 0


@pytest.mark.parametrize(
    "query",
    [
        "COPY (SELECT 1) TO '{dir}/out.csv'",
        "ATTACH '{dir}/new.db'",
        "CREATE TABLE t AS SELECT 1",
        "DROP VIEW steps",
        "SET threads = 1",
        "PRAGMA database_list",
        "INSTALL httpfs",
        "LOAD httpfs",
        "EXPORT DATABASE '{dir}/out'",
        "SELECT 1; SELECT 2",
        "SELECT 1; DROP VIEW steps",
        "",
        "-- nothing",
    ],
)
def test_anything_but_one_select_is_refused(database: Database, tmp_path: Path, query: str) -> None:
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(AmpscopeError, match="read with one SELECT statement"):
        database.query(query.format(dir=tmp_path))
    assert sorted(os.listdir(tmp_path)) == before
    assert len(database.query("SELECT * FROM steps")) == 3


@pytest.mark.parametrize(
    "source",
    [
        "read_text('/etc/hostname')",
        "read_blob('{run}/run.json')",
        "read_csv('/etc/passwd')",
        "read_parquet('{run}/../*.parquet')",
        "glob('/etc/*')",
        "'/etc/passwd'",
        "'https://example.com/x.parquet'",
        "read_parquet('s3://bucket/x.parquet')",
        "sqlite_scan('{run}/x.db', 't')",
        "local_frame",
    ],
)
def test_a_select_reaches_nothing_but_the_parts(database: Database, run_dir: Path, source: str) -> None:
    local_frame = pd.DataFrame({"secret": [1]})
    assert len(local_frame) == 1
    with pytest.raises(
        duckdb.Error, match=r"disabled by configuration|does not exist|not in the catalog|xtension"
    ):
        database.query(f"SELECT * FROM {source.format(run=run_dir)}")


@pytest.mark.parametrize("name", ["a'b", "a[1]*?", "rank=7", "step=5", "lr=0.1", 'a"b;--', "ünï π"])
def test_any_directory_name_is_only_a_name(
    tmp_path: Path, run_dir: Path, put_part: PutPart, name: str
) -> None:
    put_part("steps", [{"step": 1, "lr": 0.5}], rank=2)
    moved = tmp_path / name / "run"
    moved.parent.mkdir()
    run_dir.rename(moved)
    opened = Database(check_parts(moved))
    assert opened.query("SELECT rank, step, lr FROM steps").to_numpy().tolist() == [[2, 1, 0.5]]
    opened.close()


def test_big_sorts_may_spill_to_disk_and_leave_nothing(run_dir: Path, put_part: PutPart) -> None:
    put_part("steps", [{"step": 0}])
    opened = Database(check_parts(run_dir))
    query = "SELECT count(*) n FROM (SELECT DISTINCT hash(range) h FROM range(3000000) ORDER BY h)"
    assert opened.query(query).n[0] == 3_000_000
    opened.close()


def test_a_column_that_a_part_lacks_is_null(run_dir: Path, put_part: PutPart) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from ampscope.trace.checksum import BLANK, SEAL_KEY, seal

    put_part("steps", [{"step": 0, "loss": 2.0}])
    sink = pa.BufferOutputStream()
    table = pa.table({"from_a_newer_minor": ["x"], "step": pa.array([1], pa.int32())})
    with pq.ParquetWriter(sink, table.schema) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({SEAL_KEY: BLANK})
    path = run_dir / "steps" / "rank=0" / "part-000001.parquet"
    path.write_bytes(seal(sink.getvalue().to_pybytes()))
    opened = Database(check_parts(run_dir))
    got = opened.query("SELECT step, loss FROM steps ORDER BY step")
    assert got.step.tolist() == [0, 1]
    assert got.loss[0] == 2.0
    assert pd.isna(got.loss[1])
    with pytest.raises(duckdb.BinderException):
        opened.query("SELECT from_a_newer_minor FROM steps")
    opened.close()
