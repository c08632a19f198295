from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ampscope.commands import main
from ampscope.hooks.settings import Settings
from tests.support.forked_recorder import ForkedRecorder
from tests.support.forkserver import ForkServer

CLIPPED = """
import torch

torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
for step in range(8):
    x, y = torch.randn(32, 16), torch.randint(4, (32,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = torch.nn.functional.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    # no step longer than 1
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
"""

FIXED = CLIPPED.replace("    # no step", "    scaler.unscale_(optimizer)\n    # no step")


@pytest.fixture
def project(fork_server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with `train.py`, recorded into `run`; it is the working directory."""
    (tmp_path / "train.py").write_text(CLIPPED)
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run"
    ForkedRecorder(fork_server)([sys.executable, "train.py"], run, Settings(str(run), quiet=True), tmp_path)
    return tmp_path


def test_the_diff_applies_and_the_files_stay(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fix", "run"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("--- a/train.py\n+++ b/train.py\n")
    assert shown.err == (
        "[ampscope] AMP101 clip-before-unscale at train.py:16: Call `scaler.unscale_(optimizer)` before clipping.\n"
    )
    assert (project / "train.py").read_text() == CLIPPED
    subprocess.run(["git", "apply", "-"], cwd=project, input=shown.out, text=True, check=True)
    assert (project / "train.py").read_text() == FIXED


def test_apply_writes_once(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fix", "run", "amp101", "--apply"]) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.endswith("[ampscope] wrote train.py\n")
    assert (project / "train.py").read_text() == FIXED
    assert main(["fix", "run", "--apply"]) == 1
    shown = capsys.readouterr()
    assert "is not patched: train.py changed since the run: record it again." in shown.err
    assert (project / "train.py").read_text() == FIXED


def test_words_that_do_not_fit(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fix", "run", "AMP403"]) == 2
    assert "did not find AMP403; it found AMP101" in capsys.readouterr().err
    assert main(["fix", "run", "again"]) == 2
    assert "again is no code of a diagnosis such as AMP101" in capsys.readouterr().err
    assert main(["fix", str(project / "train.py"), "nowhere"]) == 2


def test_a_healthy_run(fork_server: ForkServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ok.py").write_text(FIXED)
    run = tmp_path / "run"
    ForkedRecorder(fork_server)([sys.executable, "ok.py"], run, Settings(str(run), quiet=True), tmp_path)
    assert main(["fix", str(run)]) == 1
    assert capsys.readouterr().err == "[ampscope] nothing to patch: no warning or critical finding\n"
