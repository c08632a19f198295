"""Updates of the scaler with the largest gradient of each, and their equal neighbours joined."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from ampscope.app.queries import replay
from ampscope.app.queries.source import Source
from ampscope.app.runs import RunStore
from ampscope.app.state import View
from tests.app.tracekit import RunKit


def source(path: Path) -> Source:
    return RunStore([path]).get(path.name).source(View())


def test_each_update_is_a_round(src: Source) -> None:
    found = replay.rounds(src)
    assert found["step"].tolist() == list(range(40))
    assert found[found["skipped"]]["step"].tolist() == [0, 1, 24]
    assert found["scale"].iloc[:3].tolist() == [65536.0, 32768.0, 16384.0]
    assert found["amax"].notna().tolist() == [step % 2 == 0 for step in range(40)]
    largest = src.value(
        "SELECT max(amax / scale) FROM {tensors} WHERE step = 6 AND role IN ('grad', 'activation_grad')"
    )
    assert found["amax"].iloc[6] == largest


def test_equal_neighbours_are_joined_and_nothing_is_lost(src: Source) -> None:
    found = replay.rounds(src)
    rows = replay.runs_of_rounds(found)
    assert rows["n"].sum() == 40
    assert rows[rows["read"]]["n"].eq(1).all()
    assert not rows[rows["skipped"]]["read"].any()
    unread = rows[rows["step"] == 3].iloc[0]
    assert unread["amax"] == max(found["amax"].iloc[2], found["amax"].iloc[4])


def test_a_stretch_without_a_reading_is_one_row(tmp_path: Path) -> None:
    rows = replay.runs_of_rounds(replay.rounds(source(RunKit(every=10).build().write(tmp_path / "r"))))
    assert rows[["step", "n"]].values.tolist()[:4] == [[0, 1], [1, 1], [2, 8], [10, 1]]


def two_optimizers(kit: RunKit, step: int, **second: Any) -> None:
    """Two segments of one update: the first optimizer steps, the second ends it."""
    for part in (0, 1):
        key = {**kit.key(step), "segment": 2 * step + part}
        kit.add("steps", **key, outcome="stepped", skipped=False, loss=1.0, scale=8.0, level="pulse")
        given = second if part else {"found_inf": False}
        kit.add("scaler", **key, scaler="GradScaler#0", scale=8.0, scale_after=8.0 if part else None, **given)


def test_optimizers_under_one_scaler_make_one_round(tmp_path: Path) -> None:
    kit = RunKit()
    two_optimizers(kit, 0, found_inf=False)
    two_optimizers(kit, 1, found_inf=True)
    found = replay.rounds(source(kit.write(tmp_path / "r")))
    assert found["skipped"].tolist() == [False, True]


def test_a_loss_that_is_no_number_is_mended_by_no_scale(tmp_path: Path) -> None:
    found = replay.rounds(source(RunKit(nan_from=30).build().write(tmp_path / "r")))
    assert found[found["broken"]]["step"].tolist() == list(range(30, 40))


def test_a_run_without_a_scaler_has_its_steps(tmp_path: Path) -> None:
    kit = RunKit().build()
    del kit.rows["scaler"]
    found = replay.rounds(source(kit.write(tmp_path / "r")))
    assert found["scale"].isna().all()
    assert len(found) == 37  # the three skipped ones say nothing without a scale
    assert replay.runs_of_rounds(found)["n"].sum() == 37


def test_a_bare_run_has_none(bare: Source) -> None:
    found = replay.rounds(bare)
    assert found.empty
    assert replay.runs_of_rounds(found).empty


@pytest.mark.parametrize("column", ["scale", "amax"])
def test_what_was_not_measured_stays_null(tmp_path: Path, column: str) -> None:
    kit = RunKit().build()
    del kit.rows["scaler"], kit.rows["tensors"]
    rows = replay.runs_of_rounds(replay.rounds(source(kit.write(tmp_path / "r"))))
    assert rows[column].isna().all()
    assert isinstance(rows, pd.DataFrame)


def test_what_stands_in_the_way(tmp_path: Path, src: Source, bare: Source) -> None:
    assert replay.obstacle(src) == ""
    assert replay.obstacle(bare) == "steps"
    assert replay.obstacle(source(RunKit(nan_from=0).build().write(tmp_path / "nan"))) == "broken"
    unread = RunKit().build()
    del unread.rows["tensors"]
    assert replay.obstacle(source(unread.write(tmp_path / "unread"))) == "unread"
