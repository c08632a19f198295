from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from ampscope.errors import AmpscopeError
from ampscope.trace.locate import find_run, latest_run, list_runs
from ampscope.trace.runinfo import create_run, point_latest


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two runs, the second newer."""
    for age, name in ((20, "a"), (10, "b")):
        create_run(tmp_path / "runs" / name, ["train.py"], {})
        os.utime(tmp_path / "runs" / name / "run.json", (1e9 - age, 1e9 - age))
    (tmp_path / "runs" / "c").mkdir()
    return tmp_path / "runs"


def test_without_a_path_it_is_the_latest(root: Path) -> None:
    assert find_run(None, root) == root / "b"
    point_latest(root / "a")
    assert find_run(None, root) == root / "a", "the link decides"
    assert find_run(root / "latest") == root / "a"


def test_a_latest_link_to_a_run_that_is_gone_is_passed_over(root: Path) -> None:
    (root / "latest").symlink_to("gone")
    assert latest_run(root) == root / "b"


def test_any_path_inside_a_run_names_it(root: Path) -> None:
    inside = root / "a" / "steps" / "rank=0"
    inside.mkdir(parents=True)
    (inside / "part-000000.parquet").touch()
    for path in (root / "a", inside, inside / "part-000000.parquet", root / "a" / "run.json"):
        assert find_run(path) == root / "a"


def test_a_folder_of_runs_names_its_latest(root: Path) -> None:
    assert find_run(root) == root / "b"


def test_a_relative_path_is_fine(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    assert find_run("a") == root / "a"
    assert find_run(None, ".") == root / "b"


def test_listing_is_newest_first_and_each_run_once(root: Path) -> None:
    point_latest(root / "a")
    assert [p.name for p in list_runs(root)] == ["b", "a"]
    assert list_runs(root / "gone") == []


def test_each_way_to_have_no_run_says_what_to_do(tmp_path: Path) -> None:
    root = tmp_path / "ampscope-runs"
    with pytest.raises(
        AmpscopeError, match=re.escape(f"No run found in {root}; record one with `ampscope run")
    ):
        find_run(None, root)
    with pytest.raises(AmpscopeError, match="does not exist; name a run directory, or leave it out"):
        find_run(root)
    root.mkdir()
    with pytest.raises(AmpscopeError, match="holds no ampscope run; record one with") as caught:
        find_run(root)
    assert caught.value.exit_code == 2
