from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch
from torch import nn

from ampscope.hooks import install
from ampscope.hooks.dispatch import OpMode
from ampscope.hooks.yielding import profiler_runs
from tests.support.opview import mode_stack
from tests.support.recording import amp_training, batch, mlp, record, rows


def overflowing(steps: int, bad_from: int) -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(steps):
        x, y = batch()
        if step >= bad_from:
            x = x * 1e6
        with torch.autocast("cpu", dtype=torch.float16):
            loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def test_census_profile_and_pulse_follow_the_schedule(tmp_path: Path) -> None:
    trace = record(tmp_path, lambda: amp_training(9, init_scale=64.0), budget=1000.0)
    levels = [r["level"] for r in rows(trace, "SELECT level FROM steps ORDER BY step")]
    assert levels[:4] == ["census", "census", "range", "profile"]
    assert levels[7] == "census"
    assert rows(trace, "SELECT DISTINCT step FROM ops ORDER BY step") == [
        {"step": 0},
        {"step": 1},
        {"step": 7},
    ]
    assert rows(trace, "SELECT DISTINCT step FROM kernels") == [{"step": 3}]
    mm = rows(
        trace, "SELECT module, in_dtypes, phase FROM ops WHERE op='aten::addmm' AND step=1 ORDER BY seq"
    )
    assert [(r["module"], r["phase"]) for r in mm] == [("0", "forward"), ("2", "forward")]
    assert set(mm[0]["in_dtypes"]) == {"float16"}


def test_the_construction_of_the_model_is_not_in_the_census(tmp_path: Path) -> None:
    trace = record(tmp_path, lambda: amp_training(1))
    assert rows(trace, "SELECT op FROM ops WHERE op IN ('aten::uniform_', 'aten::empty')") == []


def test_a_bad_forward_arms_the_watch_which_names_the_op(tmp_path: Path) -> None:
    trace = record(tmp_path, lambda: overflowing(12, bad_from=9))
    events = [r["event"] for r in rows(trace, "SELECT event FROM events ORDER BY t")]
    assert events[:2] == ["watch_armed", "watch_caught"]
    first = rows(
        trace,
        "SELECT op, module, in_nonfinite, shadow_nonfinite, line FROM ops "
        "WHERE step = 10 AND out_nonfinite > 0 AND in_nonfinite = 0 ORDER BY seq LIMIT 1",
    )[0]
    assert first["op"] == "aten::_to_copy", "the cast of the input is where 1e6 stops being finite"
    assert first["shadow_nonfinite"] == 0, "float32 would have survived"
    assert first["line"] is not None


def test_lower_levels_never_watch(tmp_path: Path) -> None:
    trace = record(tmp_path, lambda: overflowing(6, bad_from=3), level="range")
    assert trace.rows("ops") == 0
    assert trace.rows("events") == 0


def test_the_same_fault_is_not_watched_for_ever(tmp_path: Path) -> None:
    trace = record(tmp_path, lambda: overflowing(60, bad_from=2))
    watched = rows(trace, "SELECT count(*) AS n FROM steps WHERE level='watch'")[0]["n"]
    assert 1 <= watched <= 6


def test_a_mode_is_ended_on_the_thread_that_it_watches(tmp_path: Path) -> None:
    def train() -> None:
        amp_training(1)
        # The second segment is under census since its first moment; another thread ends it.
        other = threading.Thread(target=amp_training, args=(1,))
        other.start()
        other.join()
        assert any(isinstance(mode, OpMode) for mode in mode_stack())
        amp_training(1)
        assert not any(isinstance(mode, OpMode) for mode in mode_stack())

    trace = record(tmp_path, train)
    assert len(rows(trace, "SELECT step FROM steps WHERE outcome = 'stepped'")) == 3
    assert {r["step"] for r in rows(trace, "SELECT DISTINCT step FROM ops")} == {0, 2}


def test_a_mode_that_ends_within_backward_is_gone_after_it(tmp_path: Path) -> None:
    def train() -> None:
        model = nn.Linear(4, 2)
        optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}
        for param in model.parameters():
            param.register_post_accumulate_grad_hook(lambda p: optimizers[p].step())
        for step in range(6):
            model(torch.randn(3, 4)).sum().backward()
            if step > 2:  # by then the schedule has left the census
                assert not any(isinstance(mode, OpMode) for mode in mode_stack())

    trace = record(tmp_path, train, budget=1000.0)
    assert not profiler_runs(), "nor is the profile, which began in a forward"
    assert len(rows(trace, "SELECT step FROM steps WHERE outcome = 'stepped'")) == 12


@pytest.mark.parametrize("whose", ["census", "optimizers"])
def test_a_collector_that_fails_leaves_no_mode_behind(whose: str, tmp_path: Path) -> None:
    def train() -> None:
        session = install.current()
        assert session is not None
        collector = next(c for c in session.collectors if c.name == whose)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            nn.Linear(2, 2)(torch.ones(1, 2)).sum().backward()
        assert any(isinstance(mode, OpMode) for mode in mode_stack())
        session.fail(collector, ValueError("no more"))
        assert not any(isinstance(mode, OpMode) for mode in mode_stack())
        amp_training(3)
        assert not any(isinstance(mode, OpMode) for mode in mode_stack())

    trace = record(tmp_path, train, strict=False)
    assert [r["subject"] for r in rows(trace, "SELECT subject FROM events WHERE level = 'error'")] == [whose]
    assert trace.rows("steps") == (3 if whose == "census" else 1)
