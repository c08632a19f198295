"""Loops too short even for counting: most steps pass with the hooks taken away, and none is lost or mistaken."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo import convert_frame
from torch.nn.modules import module as registry

import ampscope
from ampscope.hooks import budget, install
from ampscope.hooks.device_timing import DeviceTimeline
from ampscope.hooks.tracebacks import is_ours
from ampscope.trace.reader import open_trace
from tests.diagnose.judging import judge, only, serious
from tests.hooks.test_counting import accumulating, gan, without_scaler
from tests.hooks.test_device_timing import HostEvent
from tests.support.recording import amp_training, batch, mlp, record, rows, seeded

STEPS = 240
SEEN = "step, segment, opt, opt_step, outcome, skipped"


@pytest.fixture(autouse=True)
def poor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither pulses nor counts are affordable, but for those that LOOK_UP and troubles bring about."""
    monkeypatch.setattr(budget, "PULSES", 0.0)
    monkeypatch.setattr(budget, "COUNTS", 0.0)
    monkeypatch.setattr(convert_frame, "FRAME_COUNTER", 0)  # other tests of this process have compiled


def session() -> Any:
    found = install.current()
    assert found is not None
    return found


def loop(scaled: bool = True, enabled: bool = True) -> tuple[Callable[[], None], nn.Module, Any, Any]:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=100, enabled=enabled)

    def step() -> None:
        x, y = batch()
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16 if scaled else torch.bfloat16):
            loss = nn.functional.cross_entropy(model(x), y)
        if scaled:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            optimizer.step()

    return step, model, optimizer, scaler


def until_resting(step: Callable[[], None]) -> None:
    for _ in range(600):
        step()
        if session().rest.on:
            return
    raise AssertionError("this loop never rests")


def facts(trace: Any) -> tuple[Any, Any]:
    scaler = (
        "SELECT step, segment, opt, scale, found_inf, skipped, scale_after, growth_tracker, growth_interval"
    )
    return (
        rows(trace, f"SELECT {SEEN} FROM steps WHERE outcome <> 'ended' ORDER BY segment"),
        rows(trace, f"{scaler} FROM scaler ORDER BY segment, scaler, opt"),
    )


def rested(trace: Any) -> float:
    """Share of the steps whose losses were not seen."""
    found = rows(trace, "SELECT avg(CAST(n_backward IS NULL AS INT)) AS share FROM steps")
    return float(found[0]["share"])


LOOPS = [lambda: amp_training(STEPS, clip=True), accumulating, without_scaler, gan]
IDS = ["clipping", "accumulating", "bf16", "gan"]


@pytest.mark.parametrize("train", LOOPS, ids=IDS)
def test_every_step_and_scale_is_that_of_a_pulse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train: Callable[[], None]
) -> None:
    whole = record(tmp_path / "whole", seeded(train), every=10**6)
    poor = record(tmp_path / "poor", seeded(train))
    assert rested(poor) == 0.0 if train is gan else rested(poor) > 0.4
    assert facts(poor) == facts(whole)


@pytest.mark.parametrize("train", LOOPS, ids=IDS)
def test_a_healthy_run_stays_healthy(tmp_path: Path, train: Callable[[], None]) -> None:
    assert serious(judge(tmp_path, train, budget=2.0)) == []


def test_nothing_of_training_changes(tmp_path: Path) -> None:
    def train() -> list[torch.Tensor]:
        torch.manual_seed(0)
        step, model, _, _ = loop()
        for _ in range(STEPS):
            step()
        return [p.detach().clone() for p in model.parameters()]

    plain = train()
    seen: list[torch.Tensor] = []
    trace = record(tmp_path, lambda: seen.extend(train()))
    assert rested(trace) > 0.4
    assert all(torch.equal(a, b) for a, b in zip(plain, seen, strict=True))


@pytest.mark.parametrize("scaled", [True, False])
def test_one_rest_follows_the_other(tmp_path: Path, scaled: bool) -> None:
    def train() -> None:
        step, *_ = loop(scaled)
        for _ in range(700):
            step()

    trace = record(tmp_path, train)
    found = rows(
        trace,
        "SELECT avg(CAST(n_backward IS NULL AS INT)) AS share FROM steps WHERE segment BETWEEN 256 AND 699",
    )
    assert found[0]["share"] > 0.95


def places() -> dict[str, Any]:
    return {
        "engine": torch.autograd._engine_run_backward,  # type: ignore[attr-defined]
        "clip": nn.utils.clip_grad_norm_,
        "scale": torch.amp.GradScaler.scale,
        "unscale": torch.amp.GradScaler.unscale_,
        "step": torch.amp.GradScaler.step,
        "zero_grad": torch.optim.Optimizer.zero_grad,
        "enter": torch.amp.autocast_mode.autocast.__enter__,
        "before forwards": tuple(registry._global_forward_pre_hooks.values()),
        "after forwards": tuple(registry._global_forward_hooks.values()),
    }


@pytest.mark.parametrize("scaled", [True, False])
def test_the_hooks_are_gone_and_come_back(tmp_path: Path, scaled: bool) -> None:
    plain = places()

    def train() -> None:
        hooked = places()
        assert all(hooked[name] != plain[name] for name in plain)
        step, *_ = loop(scaled)
        until_resting(step)
        assert places() == plain
        while session().rest.on:
            step()
        back = places()
        assert all(back[name] != plain[name] for name in plain)

    record(tmp_path, train)
    assert places() == plain


def test_a_step_of_a_rest_enters_little_of_ampscope(tmp_path: Path) -> None:
    ours = os.path.dirname(ampscope.__file__)
    entered = 0

    def spy(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal entered
        if event == "call" and ours in frame.f_code.co_filename:
            entered += 1

    def train() -> None:
        step, *_ = loop()
        until_resting(step)
        sys.setprofile(spy)
        try:
            for _ in range(4):
                step()
        finally:
            sys.setprofile(None)
        assert session().rest.on

    record(tmp_path, train)
    assert entered <= 4 * 10


def test_a_skip_is_told_and_brings_pulses(tmp_path: Path) -> None:
    def train() -> None:
        step, model, *_ = loop()
        until_resting(step)
        handle = next(model.parameters()).register_hook(lambda g: g * float("inf"))
        step()
        handle.remove()
        assert not session().rest.on
        for _ in range(20):
            step()

    trace = record(tmp_path, train)
    (skip,) = rows(trace, "SELECT segment, level, scale FROM steps WHERE skipped")
    at = skip["segment"]
    assert (skip["level"], skip["scale"]) == ("count", 256.0)
    found = rows(trace, f"SELECT found_inf, scale_after, growth_tracker FROM scaler WHERE segment = {at}")
    assert found == [{"found_inf": True, "scale_after": 128.0, "growth_tracker": 0}]
    assert rows(trace, f"SELECT DISTINCT role FROM nonfinite WHERE segment = {at}") == [{"role": "grad"}]
    after = rows(trace, f"SELECT level FROM steps WHERE segment BETWEEN {at + 1} AND {at + budget.ATTENTION}")
    assert [row["level"] for row in after].count("count") == 0


def test_an_update_after_a_step_that_the_script_left_out_is_no_step(tmp_path: Path) -> None:
    def train() -> None:
        step, model, optimizer, scaler = loop()
        until_resting(step)
        scaler.scale(model(batch()[0]).sum()).backward()
        scaler.unscale_(optimizer)
        scaler.update()
        step()

    trace = record(tmp_path, train)
    assert rows(trace, "SELECT DISTINCT outcome FROM steps WHERE outcome <> 'ended'") == [
        {"outcome": "stepped"}
    ]


def test_a_second_optimizer_ends_the_rest(tmp_path: Path) -> None:
    def train() -> None:
        step, *_ = loop(scaled=False)
        until_resting(step)
        step()
        other = torch.optim.SGD(mlp(1).parameters(), lr=1e-2)
        assert not session().rest.on
        until_resting(step)
        other.step()
        assert not session().rest.on
        for _ in range(3):
            step()

    trace = record(tmp_path, train)
    steps = rows(trace, "SELECT opt, opt_step, outcome FROM steps WHERE outcome = 'stepped' ORDER BY segment")
    assert [row["opt"] for row in steps[-4:]] == ["SGD#1", "SGD#0", "SGD#0", "SGD#0"]
    assert [row["opt_step"] for row in steps if row["opt"] == "SGD#0"] == list(range(len(steps) - 1))


def test_an_optimizer_around_another_does_not_rest(tmp_path: Path) -> None:
    class Around(torch.optim.SGD):
        def __init__(self, inner: torch.optim.Optimizer, params: Any) -> None:
            super().__init__(params, lr=1e-3)
            self.inner = inner

        def step(self, closure: Any = None) -> Any:
            self.inner.step()
            return super().step(closure)

    def train() -> None:
        model = mlp()
        optimizer = Around(torch.optim.SGD(model.parameters(), lr=1e-2), model.parameters())
        for _ in range(STEPS):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(batch()[0]), batch()[1]).backward()
            optimizer.step()

    trace = record(tmp_path, train)
    found = rows(
        trace,
        "SELECT opt, count(*) AS n, max(opt_step) AS last FROM steps WHERE outcome = 'stepped' GROUP BY 1",
    )
    assert found == [{"opt": "Around#0", "n": STEPS, "last": STEPS - 1}]


def assert_no_step_is_lost_and_the_update_failed(trace: Any) -> None:
    steps = rows(trace, "SELECT opt_step FROM steps WHERE outcome = 'stepped' ORDER BY segment")
    assert [row["opt_step"] for row in steps] == list(range(len(steps)))
    assert rows(trace, "SELECT call FROM calls WHERE error IS NOT NULL") == [{"call": "scaler.update"}]


def test_an_update_that_raises_after_a_step_is_recorded(tmp_path: Path) -> None:
    def train() -> None:
        step, _, optimizer, scaler = loop()
        until_resting(step)
        optimizer.step()
        with pytest.raises(AssertionError) as raised:
            scaler.update()
        assert not any(is_ours(frame.f_code) for frame, _ in traceback.walk_tb(raised.tb))
        step()

    assert_no_step_is_lost_and_the_update_failed(record(tmp_path, train))


def test_a_step_without_its_update_is_still_a_step(tmp_path: Path) -> None:
    def train() -> None:
        step, _, optimizer, scaler = loop()
        until_resting(step)
        optimizer.step()
        optimizer.step()
        with pytest.raises(AssertionError):
            scaler.update()
        step()

    assert_no_step_is_lost_and_the_update_failed(record(tmp_path, train))


def test_a_disabled_scaler_leaves_the_rest_alone(tmp_path: Path) -> None:
    def train() -> None:
        step, *_ = loop(enabled=False)
        until_resting(step)
        for _ in range(5):
            step()
        assert session().rest.on

    assert rested(record(tmp_path, train)) > 0.0


def test_an_exception_in_a_rest_has_its_step(tmp_path: Path) -> None:
    def train() -> None:
        step, *_ = loop()
        until_resting(step)
        for _ in range(5):
            step()
        raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        record(tmp_path, train)
    trace = open_trace(tmp_path / "run")
    last = rows(trace, "SELECT max(segment) AS s FROM steps WHERE outcome = 'stepped'")[0]["s"]
    (event,) = rows(trace, "SELECT segment FROM events WHERE event = 'exception'")
    assert event["segment"] == last + 1


def test_losses_that_turn_bad_while_it_rests_are_found(tmp_path: Path) -> None:
    def train() -> None:
        step, model, _, _ = loop(scaled=False)
        until_resting(step)
        with torch.no_grad():
            next(model.parameters()).fill_(float("nan"))
        for _ in range(budget.LOOK_UP + 60):
            step()

    assert serious(judge(tmp_path, train, budget=2.0)) != []


def test_the_order_of_calls_is_judged_by_the_pulses(tmp_path: Path) -> None:
    def train() -> None:
        amp_training(STEPS, clip=True, unscale=False, init_scale=1024.0)

    assert only(judge(tmp_path, train, budget=2.0), "AMP101").where.line is not None


def test_a_foreign_module_hook_keeps_ours_in_their_order(tmp_path: Path) -> None:
    def train() -> None:
        handle = registry.register_module_forward_hook(lambda m, a, o: None)
        try:
            step, *_ = loop()
            until_resting(step)
            assert len(registry._global_forward_hooks) == 2
        finally:
            handle.remove()

    record(tmp_path, train)


def test_a_process_that_compiles_does_not_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convert_frame, "FRAME_COUNTER", 1)

    def train() -> None:
        step, *_ = loop()
        for _ in range(STEPS):
            step()

    assert rested(record(tmp_path, train)) == 0.0


def test_a_module_that_ran_on_a_thread_when_the_rest_began_is_forgotten(tmp_path: Path) -> None:
    def train() -> None:
        step, model, *_ = loop()
        until_resting(step)
        session().here.modules.append(model)  # as if its forward had ended without the hook
        while session().rest.on:
            step()
        step()
        assert session().modules == []

    trace = record(tmp_path, train, every=None)
    assert rows(trace, "SELECT count(*) AS n FROM steps WHERE outcome = 'abandoned'") == [{"n": 0}]


def test_a_fork_in_a_rest_leaves_the_child_alone(tmp_path: Path) -> None:
    def train() -> None:
        step, *_ = loop()
        until_resting(step)
        pid = os.fork()
        if pid == 0:
            os._exit(0 if not session().rest.on else 1)
        assert os.waitpid(pid, 0)[1] == 0
        assert session().rest.on
        step()

    record(tmp_path, train)


def test_no_device_event_belongs_to_a_rest(tmp_path: Path) -> None:
    def train() -> None:
        session().timeline = DeviceTimeline(HostEvent)
        step, *_ = loop()
        for _ in range(STEPS):
            step()

    trace = record(tmp_path, train)
    assert rested(trace) > 0.4
    timed = "backward_device_s IS NOT NULL OR optimizer_device_s IS NOT NULL"
    assert rows(trace, f"SELECT count(*) AS n FROM steps WHERE n_backward IS NULL AND ({timed})") == [
        {"n": 0}
    ]


def test_a_failure_in_a_rest_ends_it_and_not_training(tmp_path: Path) -> None:
    def train() -> None:
        step, *_ = loop()
        until_resting(step)
        session().rest._fed = None  # what a tick needs
        for _ in range(20):
            step()
        assert not session().rest.on
        assert not session().shortcuts.on

    trace = record(tmp_path, train, strict=False)
    assert rows(trace, "SELECT subject FROM events WHERE event = 'collector_error'") == [
        {"subject": "shortcuts"}
    ]
    assert rows(trace, "SELECT count(*) AS n FROM steps WHERE loss IS NOT NULL")[0]["n"] >= 20
