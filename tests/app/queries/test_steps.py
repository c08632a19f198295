"""The course of a run: nothing is averaged, changes of the scale are exact, NaN and inf are kept apart."""

from __future__ import annotations

import math
from pathlib import Path

from ampscope.app.queries import steps
from ampscope.app.queries.source import Cache, Source
from ampscope.trace.reader import open_trace
from tests.app.tracekit import RunKit


def test_the_span_counts_segments(src: Source, bare: Source) -> None:
    assert steps.span(src) == (0, 39, 40)
    assert steps.span(bare) == (0, 0, 0)


def test_every_loss_of_a_short_run_is_there(src: Source) -> None:
    frame = steps.loss(src)
    assert frame["step"].tolist() == list(range(40))
    assert frame["loss"].iloc[0] == 4.2


def test_a_long_run_keeps_its_extremes(tmp_path: Path) -> None:
    kit = RunKit()
    for step in range(6000):
        loss = 90.0 if step == 4321 else 0.25 if step == 17 else 1.0 + 0.001 * math.sin(step)
        kit.add("steps", **kit.key(step), loss=loss, level="pulse")
    trace = open_trace(kit.write(tmp_path / "long"))
    frame = steps.loss(Source(Cache(trace)))
    trace.close()
    assert len(frame) <= steps.POINTS
    assert frame["loss"].max() == 90.0
    assert frame["loss"].min() == 0.25
    assert frame["step"].is_monotonic_increasing


def test_losses_that_are_no_number_are_named(other: Source, src: Source) -> None:
    assert steps.bad_losses(src).empty
    bad = steps.bad_losses(other)
    assert set(bad["kind"]) == {"NaN"}
    assert sorted(bad["step"]) == list(range(30, 40))
    assert steps.loss(other)["step"].max() == 29


def test_the_scale_is_kept_where_it_changes(src: Source) -> None:
    frame = steps.scale(src)
    assert list(zip(frame["step"], frame["scale"], strict=True)) == [
        (0, 65536.0), (1, 32768.0), (2, 16384.0), (23, 16384.0), (24, 32768.0), (25, 16384.0), (39, 16384.0),
    ]  # fmt: skip


def test_without_scaler_rows_the_steps_give_the_scale(tmp_path: Path) -> None:
    kit = RunKit()
    for step in range(3):
        kit.add("steps", **kit.key(step), scale=8.0, level="pulse")
    trace = open_trace(kit.write(tmp_path / "r"))
    frame = steps.scale(Source(Cache(trace)))
    trace.close()
    assert frame["scaler"].tolist() == ["loss scale", "loss scale"]


def test_skips_and_who_broke_them(src: Source) -> None:
    assert steps.skips(src)["step"].tolist() == [0, 1, 24]
    assert steps.skip_count(src) == 3
    blame = steps.blame(src)
    assert blame["step"].tolist() == [24, 1, 0]
    assert set(blame["culprit"]) == {"head.weight"}
    assert blame["tensors"].tolist() == [2, 2, 2]
    assert blame["inf"].tolist() == [8, 8, 8]


def test_the_policy_of_the_scaler(src: Source, bare: Source) -> None:
    row = steps.policy(src).iloc[0]
    assert (row["growth_interval"], row["lowest"], row["last"], row["skipped"]) == (22, 16384.0, 16384.0, 3)
    assert row["first"] == 65536.0
    assert steps.policy(bare).empty


def test_the_learning_rate_by_optimizer(src: Source) -> None:
    frame = steps.learning_rate(src)
    assert set(frame["opt"]) == {"AdamW#0"}
    assert len(frame) == 40
