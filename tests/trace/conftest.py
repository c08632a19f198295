"""A fresh run directory, and a way to put parts into it without a thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from ampscope.trace.runinfo import create_run
from ampscope.trace.store import PartStore

Row = Mapping[str, object]
PutPart = Callable[..., Path]


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    path = tmp_path / "run"
    create_run(path, ["train.py", "--lr", "1e-3"], {"level": "range"})
    return path


@pytest.fixture
def put_part(run_dir: Path) -> PutPart:
    """`put_part(table, rows, rank=0, proc=0)` writes one part and returns its path."""

    def put(table: str, rows: Sequence[Row], rank: int = 0, proc: int = 0) -> Path:
        def fail(kind: object, message: str, error: BaseException) -> None:
            raise AssertionError(message) from error

        store = PartStore(run_dir, rank, proc, fail)
        assert store.encode(table, rows) == 0
        assert store.store() == len(rows)
        folder = run_dir / table / f"rank={rank}"
        return max(folder.glob(f"part-p{proc}-*.parquet" if proc else "part-0*.parquet"))

    return put
