"""`ampscope run`: options become settings, and the command's end becomes ours. Fidelity is in tests/fidelity."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from ampscope.commands import load, main, parser_of
from ampscope.commands.run import settings_of
from ampscope.errors import AmpscopeError
from ampscope.hooks.settings import Settings


def settings(*words: str) -> Settings:
    args = parser_of("run", load("run")).parse([*words, "train.py"])
    assert args.command == ["train.py"]
    return settings_of(args, Path("r"))


def test_defaults(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert settings() == Settings(run_dir=str(tmp_path / "r"))


def test_every_option_arrives() -> None:
    words = (
        "--every 7 --level range --watch --steps 3:9 --tensors *.weight --exact --eager-census -q --strict"
    )
    assert settings(*words.split(), "--set", "module.fp32=a", "--precision", "bf16") == Settings(
        run_dir=os.path.abspath("r"),
        level="range",
        every=7,
        watch=True,
        steps=(3, 9),
        tensors="*.weight",
        exact=True,
        eager_census=True,
        quiet=True,
        strict=True,
        overrides={
            "autocast.enabled": ["true"],
            "autocast.dtype": ["bfloat16"],
            "scaler.enabled": ["false"],
            "module.fp32": ["a"],
        },
    )
    assert settings("--budget", "0.5").budget == 0.5


@pytest.mark.parametrize(
    "words",
    [
        ["--every", "0"],
        ["--every", "1.5"],
        ["--budget", "0"],
        ["--budget", "nan"],
        ["--budget", "101"],
        ["--every", "2", "--budget", "3"],
        ["--level", "all"],
        ["--steps", "9:3"],
        ["--precision", "fp8"],
        ["--set", "x"],
    ],
)
def test_bad_values(words: list[str]) -> None:
    with pytest.raises(AmpscopeError) as caught:
        settings(*words)
    assert caught.value.exit_code == 2


def test_a_run_gets_a_directory_a_name_and_the_link(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", "sh", "-c", "echo out; exit 3"]) == 3
    out, err = capfd.readouterr()
    assert out == "out\n"
    assert all(line.startswith("[ampscope] ") for line in err.splitlines())
    latest = tmp_path / "ampscope-runs" / "latest"
    run_dir = latest.resolve()
    assert run_dir.name.startswith("sh-")
    assert latest.is_symlink()
    record = json.loads((run_dir / "run.json").read_text())
    assert (record["exit_status"], record["command"][:2]) == (3, ["sh", "-c"])


def test_a_directory_of_ones_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", "-q", "-o", "here", "true"]) == 0
    assert main(["run", "-q", "-o", "here", "true"]) == 2
    assert "-f" in capfd.readouterr().err
    (tmp_path / "here" / "not-recorded").write_text("old")
    assert main(["run", "-f", "-o", "here", sys.executable, "-c", "print(1)"]) == 0
    assert "old" not in capfd.readouterr().err
    assert os.listdir(tmp_path) == ["here"]


def test_quiet_is_silent(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "-q", "-o", str(tmp_path / "r"), "true"]) == 0
    assert capfd.readouterr() == ("", "")
