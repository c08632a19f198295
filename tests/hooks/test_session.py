from __future__ import annotations

import math
import threading
from pathlib import Path

import pytest
import torch
from torch import nn

from ampscope.hooks import install
from ampscope.hooks.deferred import DeferredScalars, Receive
from ampscope.hooks.settings import Settings
from tests.support.recording import amp_training, batch, mlp, record, rows


def test_steps_are_counted_as_the_user_would(tmp_path: Path) -> None:
    trace = record(tmp_path, lambda: amp_training(5))
    steps = rows(trace, "SELECT step, outcome, skipped, n_backward, loss, scale FROM steps ORDER BY step")
    assert [r["step"] for r in steps] == [0, 1, 2, 3, 4]
    assert {r["outcome"] for r in steps} == {"stepped"}
    assert all(r["n_backward"] == 1 and r["scale"] == 65536.0 for r in steps)
    assert all(0.0 < r["loss"] < 10.0 for r in steps)


def test_micro_batches_belong_to_the_step_they_lead_to(tmp_path: Path) -> None:
    def train() -> None:
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for micro in range(6):
            x, y = batch()
            (nn.functional.cross_entropy(model(x), y) / 3).backward()
            if micro % 3 == 2:
                optimizer.step()
                optimizer.zero_grad()

    trace = record(tmp_path, train)
    steps = rows(trace, "SELECT step, n_backward FROM steps ORDER BY step")
    assert steps == [{"step": 0, "n_backward": 3}, {"step": 1, "n_backward": 3}]
    backward = rows(trace, "SELECT step, micro FROM calls WHERE call = 'backward' ORDER BY seq")
    assert [(r["step"], r["micro"]) for r in backward] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]


def test_values_that_a_device_gives_late_are_in_the_row_of_their_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train() -> None:
        torch.manual_seed(0)
        amp_training(4)

    sums = "SELECT step, loss, root_sum, outcome FROM steps ORDER BY step"
    at_once = rows(record(tmp_path / "now", train), sums)

    on_their_way: list[tuple[float, Receive]] = []

    def put(self: DeferredScalars, tensor: torch.Tensor, receive: Receive) -> None:
        on_their_way.append((float(tensor.detach()), receive))

    def poll(self: DeferredScalars, wait: bool = False) -> bool:
        while on_their_way:
            value, receive = on_their_way.pop(0)
            receive(value)
        return True

    monkeypatch.setattr(DeferredScalars, "put", put)
    monkeypatch.setattr(DeferredScalars, "poll", poll)
    late = rows(record(tmp_path / "late", train), sums)
    assert late == at_once
    assert all(row["loss"] is not None and row["root_sum"] is not None for row in late)


def test_gradients_thrown_away_make_an_abandoned_step(tmp_path: Path) -> None:
    def train() -> None:
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for throw_away in (True, False):
            x, y = batch()
            nn.functional.cross_entropy(model(x), y).backward()
            if throw_away:
                optimizer.zero_grad()
        optimizer.step()

    steps = rows(record(tmp_path, train), "SELECT step, outcome FROM steps ORDER BY step")
    assert [r["outcome"] for r in steps] == ["abandoned", "stepped"]


def test_clearing_another_models_gradients_abandons_nothing(tmp_path: Path) -> None:
    def train() -> None:
        judge, maker = mlp(), mlp(1)
        optimizer = torch.optim.SGD(judge.parameters(), lr=0.1)
        for _ in range(2):
            x, y = batch()
            nn.functional.cross_entropy(judge(x), y).backward()
            maker.zero_grad()
            nn.functional.cross_entropy(judge(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()

    steps = rows(record(tmp_path, train), "SELECT outcome, n_backward FROM steps ORDER BY step")
    assert steps == [{"outcome": "stepped", "n_backward": 2}] * 2


def test_work_after_the_last_step_is_cut_off(tmp_path: Path) -> None:
    def train() -> None:
        amp_training(2)
        model = mlp()
        nn.functional.cross_entropy(model(torch.randn(4, 8)), torch.zeros(4, dtype=torch.long)).backward()

    outcomes = rows(record(tmp_path, train), "SELECT outcome FROM steps ORDER BY step, segment")
    assert [r["outcome"] for r in outcomes] == ["stepped", "stepped", "cut_off"]


def test_a_loss_that_is_not_finite_keeps_its_value(tmp_path: Path) -> None:
    def train() -> None:
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x, y = batch()
        (nn.functional.cross_entropy(model(x), y) * float("nan")).backward()
        optimizer.step()

    steps = rows(record(tmp_path, train), "SELECT isnan(loss) AS bad FROM steps")
    assert steps == [{"bad": True}]


def test_a_failing_collector_is_switched_off_and_training_goes_on(tmp_path: Path) -> None:
    done: list[bool] = []

    def train() -> None:
        session = install.current()
        assert session is not None
        session._tell["segment_end"].insert(0, session.collectors[2].guarded(lambda segment: 1 / 0))
        amp_training(3)
        done.append(True)

    trace = record(tmp_path, train, strict=False)
    assert done == [True]
    errors = rows(trace, "SELECT subject, message FROM events WHERE event = 'collector_error'")
    assert len(errors) == 1
    assert "ZeroDivisionError" in errors[0]["message"]
    assert len(rows(trace, "SELECT step FROM steps")) == 3


def test_every_phase_of_a_step_has_its_time(tmp_path: Path) -> None:
    trace = record(tmp_path, lambda: amp_training(3, clip=True))
    for row in rows(trace, "SELECT * FROM steps"):
        spent = [row[f"{p}_s"] for p in ("data", "forward", "backward", "unscale", "optimizer")]
        assert all(s is not None and math.isfinite(s) and s >= 0.0 for s in spent)
        assert row["forward_s"] > 0.0
        assert row["backward_s"] > 0.0
        assert sum(spent) <= row["duration_s"] * 1.0001


def test_optimizers_of_several_threads_step_for_themselves(tmp_path: Path) -> None:
    def train() -> None:
        threads = [threading.Thread(target=amp_training, args=(4,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    trace = record(tmp_path, train)
    steps = rows(
        trace, "SELECT opt, count(*) AS n, count(DISTINCT segment) AS segments FROM steps GROUP BY opt"
    )
    assert {(r["opt"], r["n"], r["segments"]) for r in steps} == {(f"AdamW#{i}", 4, 4) for i in range(3)}


def test_where_no_trace_can_be_opened_there_is_one_line_and_no_further_cost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    session = install.start(Settings(str(tmp_path / "file" / "run")))
    try:
        amp_training(2)
        assert all(collector.dead for collector in session.collectors)
    finally:
        install.stop(session)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(
        f"[ampscope] no trace can be written to {tmp_path / 'file' / 'run'} (NotADirectory"
    )
    assert said.err.count("\n") == 1


def test_hooks_that_cannot_be_taken_away_are_told_of_and_dead(tmp_path: Path) -> None:
    def train() -> None:
        session = install.current()
        assert session is not None
        blame = next(c for c in session.collectors if c.name == "blame")
        blame.remove = lambda: 1 / 0  # type: ignore[assignment, method-assign]
        amp_training(2)

    trace = record(tmp_path, train, strict=False)
    errors = rows(trace, "SELECT subject, message FROM events WHERE event = 'collector_error'")
    assert errors == [{"subject": "blame", "message": "ZeroDivisionError: division by zero"}]
