from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ampscope.commands import main
from ampscope.hooks.settings import Settings
from ampscope.trace.reader import open_trace
from ampscope.verify.outcome import read_outcomes
from tests.support.forked_recorder import ForkedRecorder
from tests.support.forkserver import ForkServer

SAWTOOTH = """
import torch

torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Linear(16, 4)
opt = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12, growth_interval=2)
for step in range({steps}):
    x, y = torch.randn(32, 16), torch.randint(4, (32,))
    opt.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = torch.nn.functional.cross_entropy(model(x), y, reduction="sum")
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
"""


@pytest.fixture
def run(fork_server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").write_text(SAWTOOTH.format(steps=60))
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run"
    ForkedRecorder(fork_server)([sys.executable, "train.py"], run, Settings(str(run), quiet=True), tmp_path)
    return run


def test_the_command_runs_again_and_the_report_says_what_that_showed(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "kept"
    assert main(["verify", str(run), "--steps", "40", "-o", str(kept)]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith(
        "AMP202 verified: AMP202 is gone after 40 steps with --set scaler.growth_interval=2000"
    )
    assert shown.err == "[ampscope] running the command again to verify AMP202\n"
    (outcome,) = read_outcomes(run)
    assert shown.out == f"AMP202 {outcome.sentence}\n"
    with open_trace(kept / "1-AMP202" / "run") as again:
        assert again.info.settings["overrides"] == {"scaler.growth_interval": ["2000"]}
    assert main(["report", str(run)]) == 0
    assert "verified: AMP202 is gone after 40 steps" in capsys.readouterr().out
    assert main(["verify", str(run), "-o", str(kept)]) == 2
    assert "cannot be made" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["AMP101"], "did not find AMP101; it found AMP202"),
        (["--steps", "0"], "must be a whole number from 1"),
        (["elsewhere", "too"], "is no code of a diagnosis"),
    ],
)
def test_words_that_do_not_fit(
    run: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(run), *words]) == 2
    assert said in capsys.readouterr().err


def test_a_run_without_a_fault(
    fork_server: ForkServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ok.py").write_text(SAWTOOTH.format(steps=4))
    run = tmp_path / "run"
    ForkedRecorder(fork_server)([sys.executable, "ok.py"], run, Settings(str(run), quiet=True), tmp_path)
    assert main(["verify", str(run)]) == 2
    assert "There is nothing to verify" in capsys.readouterr().err


def test_what_cannot_be_decided_is_status_2(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.py").write_text("changed = True\n")
    assert main(["verify", str(run)]) == 2
    assert "undecidable: train.py changed since the run" in capsys.readouterr().out
