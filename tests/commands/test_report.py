from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path

import pytest

from ampscope.commands import main
from tests.report.handmade import CWD, SECRET, make_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "train-1"
    make_run(path)
    return path


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("t.md", b"# ampscope report: `train.py`"),
        ("t.MARKDOWN", b"# ampscope report"),
        ("t.html", b"<!DOCTYPE html>"),
        ("t.htm", b"<!DOCTYPE html>"),
        ("t.json", b'{\n "report_schema": 1'),
        ("t.zip", b"PK"),
    ],
)
def test_the_suffix_says_the_format(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, start: bytes
) -> None:
    target = tmp_path / name
    assert main(["report", str(run), "-o", str(target)]) == 0
    assert target.read_bytes().startswith(start)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"[ampscope] wrote {target} (")
    assert os.listdir(tmp_path) == [name]


def test_markdown_and_json_go_to_the_terminal(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run)]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("# ampscope report")
    assert shown.err == ""
    assert main(["report", str(run), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["run"]["script"] == "train.py"


def test_private_text_is_taken_out_unless_told_otherwise(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["report", str(run)])
    assert not any(private in capsys.readouterr().out for private in (CWD, SECRET, "/home/alice"))
    main(["report", str(run), "--no-redact"])
    shown = capsys.readouterr().out
    assert SECRET in shown
    assert CWD in shown
    assert "Not redacted" in shown


def test_the_file_is_replaced(run: Path, tmp_path: Path) -> None:
    target = tmp_path / "t.md"
    target.write_text("old " * 100_000)
    assert main(["report", str(run), "-o", str(target)]) == 0
    assert "old " not in target.read_text()[:10]


def test_the_format_option_wins_over_the_suffix(run: Path, tmp_path: Path) -> None:
    target = tmp_path / "report.bin"
    assert main(["report", str(run), "-o", str(target), "--format", "zip"]) == 0
    assert "report.md" in zipfile.ZipFile(target).namelist()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-o", "x.txt"], "x.txt does not say which format to write: end it in .md, .html, .json or .zip"),
        (["--format", "html"], "A html report goes into a file: add `-o report.html`."),
        (["--format", "zip"], "A zip report goes into a file"),
        (["--format", "pdf"], "invalid choice: 'pdf'"),
        (
            ["-o", "no/such/folder/x.md"],
            "no/such/folder/x.md could not be written (No such file or directory)",
        ),
    ],
)
def test_wrong_use_is_one_sentence(
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(run), *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert said in shown.err
    assert shown.err.count("\n") == 1
    assert os.listdir(tmp_path) == []


def test_a_directory_is_not_replaced(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "x.md"
    folder.mkdir()
    assert main(["report", str(run), "-o", str(folder)]) == 2
    assert "is a directory; name a file in it" in capsys.readouterr().err


def test_a_run_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report"]) == 2
    assert main(["report", "nothing"]) == 2
    assert "nothing does not exist" in capsys.readouterr().err
