"""What a user types is what is started, and the environment gains two variables only."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from ampscope.errors import AmpscopeError
from ampscope.hooks.settings import ENV_VAR, Settings
from ampscope.launch.command import BOOTSTRAP, child_environment, resolve, run_name


def test_a_script_runs_in_this_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__main__.py").touch()
    assert resolve(["train.py", "--lr", "1"]) == [sys.executable, "train.py", "--lr", "1"]
    assert resolve(["./train.py"]) == [sys.executable, "./train.py"]
    assert resolve(["app", "x"]) == [sys.executable, "app", "x"]


@pytest.mark.parametrize("words", [["-m", "pkg.mod", "--help"], ["-c", "print(1)", "-x"], ["-", "-v"]])
def test_python_ways_to_run_code(words: list[str]) -> None:
    assert resolve(words) == [sys.executable, *words]


def test_any_other_word_is_a_command() -> None:
    assert resolve(["sh", "-c", "true"]) == ["sh", "-c", "true"]


def test_what_cannot_be_started_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").touch(0o644)
    for words, code, said in [
        ([], 2, "no command"),
        (["-m"], 2, "module name"),
        (["-c"], 2, "code"),
        (["missing.py"], 2, "no script missing.py"),
        (["no-such-command-here"], 127, "not a command"),
        (["./notes.txt"], 126, "not executable"),
    ]:
        with pytest.raises(AmpscopeError, match=said) as caught:
            resolve(words)
        assert caught.value.exit_code == code


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["dir/train.py", "--x"], "train"),
        (["-m", "my.trainer"], "trainer"),
        (["-m", "my.trainer.__main__"], "trainer"),
        (["-c", "code"], "python"),
        (["torchrun", "--nproc-per-node", "2", "fit.py"], "fit"),
        (["/usr/bin/bash", "go.sh"], "bash"),
    ],
)
def test_run_name(words: list[str], name: str) -> None:
    assert run_name(words) == name


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, BOOTSTRAP),
        ("", BOOTSTRAP),
        ("/a:/b", f"{BOOTSTRAP}:/a:/b"),
        (":/a", f"{BOOTSTRAP}::/a"),
        (f"{BOOTSTRAP}:/a", f"{BOOTSTRAP}:/a"),
    ],
)
def test_pythonpath(before: str | None, after: str) -> None:
    base = {"HOME": "/h"} if before is None else {"HOME": "/h", "PYTHONPATH": before}
    settings = Settings(run_dir="/r", steps=(1, None))
    env = child_environment(settings, base)
    assert env.pop("PYTHONPATH") == after
    assert Settings.from_env(env) == settings
    del env[ENV_VAR]
    assert env == {"HOME": "/h"}
    assert base.get("PYTHONPATH") == before


def test_the_bootstrap_is_there() -> None:
    assert os.path.isfile(os.path.join(BOOTSTRAP, "sitecustomize.py"))
