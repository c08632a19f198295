from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ampscope.commands import main
from tests.report.handmade import make_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "train-1"
    make_run(path)
    return path


def test_perfetto(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["export", str(run), "--to", "perfetto"]) == 0
    assert os.listdir(tmp_path) == ["train-1.perfetto.json"]
    assert json.loads((tmp_path / "train-1.perfetto.json").read_text())["traceEvents"]
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("[ampscope] wrote train-1.perfetto.json (")


def test_csv(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(run), "--to", "csv", "-o", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "steps.csv").read_text().count("\n") == 121
    assert "steps 120 rows" in capsys.readouterr().err


@pytest.mark.parametrize("to", ["perfetto", "csv"])
def test_what_cannot_be_written_is_one_sentence(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], to: str
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert main(["export", str(run), "--to", to, "-o", str(blocked / "x")]) == 2
    shown = capsys.readouterr().err
    assert "could not be written" in shown
    assert shown.count("\n") == 1


def test_a_format_must_be_named(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(run)]) == 2
    assert "--to" in capsys.readouterr().err
