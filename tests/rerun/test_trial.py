from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ampscope.errors import AmpscopeError
from ampscope.hooks.settings import Settings
from ampscope.rerun.trial import record, steps_taken, trial_settings
from ampscope.trace.reader import open_trace

ENDLESS = """
import torch
model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    opt.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    opt.step()
"""


def test_a_command_is_recorded_until_it_took_the_steps(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(ENDLESS)
    run = tmp_path / "run"
    told: list[int] = []
    trial = record([sys.executable, str(script)], run, trial_settings(run, {}), tmp_path, 30, told.append)
    assert trial.stopped
    assert not trial.failed
    assert trial.log.read_text() == ""
    with open_trace(run) as trace:
        assert steps_taken(trace) >= 30
        assert trace.info.state == "complete"
        assert trace.info.command == (sys.executable, str(script))
    assert told[0] == 0
    assert told[-1] >= 30


def test_a_command_that_does_not_train(tmp_path: Path) -> None:
    run = tmp_path / "run"
    argv = [sys.executable, "-c", "print('hello'); raise SystemExit(4)"]
    trial = record(argv, run, trial_settings(run, {}), tmp_path)
    assert (trial.ended.status, trial.stopped, trial.failed) == (4, False, True)
    assert trial.log.read_text() == "hello\n"
    with open_trace(run) as trace:
        assert steps_taken(trace) == 0


def test_a_command_that_cannot_start_leaves_a_finished_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(AmpscopeError, match="could not be started"):
        record(["no-such-command"], run, trial_settings(run, {}), tmp_path)
    with open_trace(run) as trace:
        assert trace.info.state == "complete"


def test_settings_of_a_trial(tmp_path: Path) -> None:
    settings = trial_settings(tmp_path, {"autocast.dtype": ["bfloat16"]}, watch=True)
    assert settings == Settings(
        run_dir=str(tmp_path),
        budget=100.0,
        watch=True,
        overrides={"autocast.dtype": ["bfloat16"]},
        flush_seconds=0.5,
        quiet=True,
    )
