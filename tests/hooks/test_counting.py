"""Segments for which the budget has no pulse: what is still true of them, and what they must not be taken for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ampscope.hooks import budget, install
from ampscope.hooks.device_timing import DeviceTimeline
from ampscope.trace.reader import open_trace
from tests.diagnose.judging import judge as judge_at
from tests.diagnose.judging import only, serious
from tests.hooks.test_device_timing import HostEvent
from tests.support.recording import amp_training, batch, mlp, record, rows, seeded

EXACT = "step, segment, opt, opt_step, outcome, skipped, loss, lr, scale, n_backward, loss_dtype"
STEPS = 240


@pytest.fixture
def frugal(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pulse is affordable, only what LOOK_AGAIN and troubles bring about; counting is."""
    only_counts(monkeypatch)


def only_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "PULSES", 0.0)
    monkeypatch.setattr(budget, "COUNTS", 100.0)


def judge(path: Path, train: Callable[[], object], **options: Any) -> Any:
    return judge_at(path, train, budget=2.0, **options)


def gan() -> None:
    """Two optimizers and one scaler, unscaled together, stepped one after the other."""
    first, second = mlp(), mlp(1)
    optimizers = [torch.optim.SGD(m.parameters(), lr=1e-2) for m in (first, second)]
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=100)
    for _ in range(STEPS // 2):
        x, y = batch()
        for optimizer in optimizers:
            optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            losses = [nn.functional.cross_entropy(m(x), y) for m in (first, second)]
        for loss in losses:
            scaler.scale(loss).backward()
        for optimizer in optimizers:
            scaler.unscale_(optimizer)
        for model, optimizer in zip((first, second), optimizers, strict=True):
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
        scaler.update()


def accumulating() -> None:
    """Four backwards a step, a scheduler, gradients cleared at the end, the scale growing into skips."""
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1.0 / (1 + n))
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16, growth_interval=40)
    for _ in range(STEPS):
        for _ in range(4):
            x, y = batch(8)
            with torch.autocast("cpu", dtype=torch.float16):
                loss = nn.functional.cross_entropy(model(x), y) / 4
            scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scale = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        if scaler.get_scale() >= scale:
            scheduler.step()
        optimizer.zero_grad()


def without_scaler() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    for _ in range(STEPS):
        x, y = batch()
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()


LOOPS = [lambda: amp_training(STEPS, clip=True), gan, accumulating, without_scaler]
IDS = ["clipping", "gan", "accumulating", "bf16"]


def facts(trace: Any) -> tuple[Any, Any]:
    scaler = "SELECT step, segment, opt, scale, found_inf, skipped, scale_after, growth_tracker FROM scaler"
    return (
        rows(trace, f"SELECT {EXACT} FROM steps WHERE outcome <> 'ended' ORDER BY segment"),
        rows(trace, f"{scaler} ORDER BY segment, scaler, opt"),
    )


@pytest.mark.parametrize("train", LOOPS, ids=IDS)
def test_steps_losses_and_scales_are_those_of_a_pulse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train: Callable[[], None]
) -> None:
    whole = record(tmp_path / "whole", seeded(train), every=10**6)
    only_counts(monkeypatch)
    thin = record(tmp_path / "thin", seeded(train))
    levels = rows(thin, "SELECT count(*) FILTER (level = 'count') AS n, count(*) AS of FROM steps")[0]
    assert levels["n"] > 0.6 * levels["of"]
    assert facts(thin) == facts(whole)


@pytest.mark.parametrize("train", LOOPS, ids=IDS)
def test_a_healthy_run_stays_healthy(tmp_path: Path, frugal: None, train: Callable[[], None]) -> None:
    found = judge(tmp_path, train)
    assert serious(found) == []


def test_a_schedule_that_few_skips_bend_is_left_alone(tmp_path: Path, frugal: None) -> None:
    def train() -> None:
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1.0 / (1 + n))
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**19, growth_interval=60)
        for _ in range(STEPS):
            x, y = batch()
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = nn.functional.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()

    found = judge(tmp_path, train)
    assert "AMP112" not in serious(found)
    with open_trace(tmp_path / "run") as trace:
        lost, advances = (
            rows(trace, f"SELECT count(*) AS n FROM {which}")[0]["n"]
            for which in ("scaler WHERE skipped", "calls WHERE call = 'scheduler.step'")
        )
    assert lost >= 3
    assert lost / advances > 0.05, "what was recorded of the schedule alone would be a reason to complain"


def test_nothing_of_training_changes(tmp_path: Path, frugal: None) -> None:
    def train() -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = mlp()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        scaler = torch.amp.GradScaler("cpu", growth_interval=20)
        for _ in range(STEPS):
            x, y = batch()
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = nn.functional.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        return [p.detach().clone() for p in model.parameters()]

    plain = train()
    seen: list[torch.Tensor] = []
    record(tmp_path, lambda: seen.extend(train()))
    assert all(torch.equal(a, b) for a, b in zip(plain, seen, strict=True))


def test_a_fault_in_the_order_of_calls_is_found(tmp_path: Path, frugal: None) -> None:
    found = judge(tmp_path, lambda: amp_training(STEPS, clip=True, unscale=False, init_scale=1024.0))
    finding = only(found, "AMP101")
    assert finding.where.line is not None


def test_a_skipped_step_tells_its_calls_and_brings_pulses(tmp_path: Path, frugal: None) -> None:
    trace = record(tmp_path, accumulating)
    skips = rows(trace, "SELECT segment FROM steps WHERE skipped AND level = 'count' ORDER BY segment")
    assert skips
    at = skips[0]["segment"]
    calls = rows(trace, f"SELECT call, detail FROM calls WHERE segment = {at} ORDER BY seq")
    assert [c["call"] for c in calls].count("backward") == 4
    assert any(c["call"] == "scaler.step" and c["detail"] == "skipped" for c in calls)
    after = rows(trace, f"SELECT level FROM steps WHERE segment BETWEEN {at + 1} AND {at + budget.ATTENTION}")
    assert all(row["level"] != "count" for row in after)
    blamed = rows(trace, f"SELECT DISTINCT role FROM nonfinite WHERE segment = {at}")
    assert blamed == [{"role": "grad"}]


def test_a_loss_that_turns_bad_is_looked_at(tmp_path: Path, frugal: None) -> None:
    def train() -> None:
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        for step in range(STEPS):
            x, y = batch()
            if step == 200:
                x[0, 0] = float("nan")
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()

    trace = record(tmp_path, train)
    first = rows(trace, "SELECT min(segment) AS s FROM steps WHERE isnan(loss)")[0]["s"]
    assert first == 200
    told = rows(trace, f"SELECT call FROM calls WHERE segment = {first} ORDER BY seq")
    assert [t["call"] for t in told] == ["backward", "optimizer.step"]
    assert (
        rows(trace, "SELECT count(*) AS n FROM steps WHERE segment > 200 AND level <> 'count'")[0]["n"] >= 8
    )


def test_a_call_that_raises_has_its_line(tmp_path: Path, frugal: None) -> None:
    def train() -> None:
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        scaler = torch.amp.GradScaler("cpu")
        for step in range(200):
            x, y = batch()
            optimizer.zero_grad()
            scaler.scale(nn.functional.cross_entropy(model(x), y)).backward()
            scaler.unscale_(optimizer)
            if step == 199:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()

    found = judge(tmp_path, train, raises=True)
    assert only(found, "AMP102").where.line is not None


def test_what_is_left_between_two_steps_is_thrown_away_as_ever(tmp_path: Path, frugal: None) -> None:
    def train() -> None:
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        for step in range(STEPS):
            for _ in range(2 if step % 50 == 49 else 1):
                x, y = batch()
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()

    trace = record(tmp_path, train)
    outcomes = rows(trace, "SELECT outcome, count(*) AS n FROM steps GROUP BY ALL ORDER BY ALL")
    assert outcomes == [{"outcome": "abandoned", "n": STEPS // 50}, {"outcome": "stepped", "n": STEPS}]


def test_an_optimizer_that_steps_within_a_forward_is_not_counted(tmp_path: Path, frugal: None) -> None:
    class Learner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = mlp()
            self.optimizer = torch.optim.SGD(self.inner.parameters(), lr=1e-2)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            self.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(self.inner(x), y)
            loss.backward()
            self.optimizer.step()
            return loss.detach()

    def train() -> None:
        learner = Learner()
        for _ in range(STEPS):
            learner(*batch())

    trace = record(tmp_path, train)
    assert rows(trace, "SELECT count(*) AS n FROM steps WHERE level = 'count'") == [{"n": 0}]


def test_no_device_event_belongs_to_a_counted_step(tmp_path: Path, frugal: None) -> None:
    def train() -> None:
        session = install.current()
        assert session is not None
        session.timeline = DeviceTimeline(HostEvent)
        amp_training(STEPS)

    trace = record(tmp_path, train)
    timed = "backward_device_s IS NOT NULL OR optimizer_device_s IS NOT NULL"
    assert rows(
        trace, f"SELECT DISTINCT level = 'count' AS counted, {timed} AS timed FROM steps ORDER BY 1"
    ) == [
        {"counted": False, "timed": True},
        {"counted": True, "timed": False},
    ]
