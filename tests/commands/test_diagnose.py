from __future__ import annotations

import json
from pathlib import Path

import pytest

from ampscope.commands import main
from tests.diagnose.handmade import scaler, step, write
from tests.diagnose.judging import schema

SAWTOOTH = [
    scaler(
        i, 2.0 ** (17 if i % 3 == 2 else 16), 2.0 ** (17 if i % 3 == 1 else 16), i % 3 == 2, growth_interval=2
    )
    for i in range(60)
]


@pytest.fixture
def warned(tmp_path: Path) -> Path:
    """A run with one warning and nothing critical."""
    steps = [step(i, "skipped" if i % 3 == 2 else "stepped") for i in range(60)]
    return write(tmp_path, {"steps": steps, "scaler": SAWTOOTH})


def test_text(warned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", str(warned)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("AMP202 growth-interval-too-short")
    assert "WARNING AMP202" in out
    assert max(len(line) for line in out.splitlines()) <= 80
    assert "\x1b[" not in out


def test_json(warned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", str(warned), "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    schema().validate(made)
    assert [f["code"] for f in made["findings"]] == ["AMP202"]


@pytest.mark.parametrize(("limit", "status"), [("critical", 0), ("warning", 1), ("info", 1)])
def test_the_gate(warned: Path, limit: str, status: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", str(warned), "--fail-on", limit]) == status
    assert capsys.readouterr().out


def test_a_silenced_code_does_not_fail_the_gate(
    warned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text('[tool.ampscope]\nsilence = { AMP202 = "short test run" }\n')
    monkeypatch.chdir(project)
    assert main(["diagnose", str(warned), "--fail-on", "info", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["findings"] == []
    assert made["coverage"]["silenced"] == [{"code": "AMP202", "reason": "short test run"}]


def test_the_latest_run_is_the_default(
    warned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "ampscope-runs"
    root.mkdir()
    warned.rename(root / "train-1")
    monkeypatch.chdir(tmp_path)
    assert main(["diagnose"]) == 0
    assert "AMP202" in capsys.readouterr().out


def test_an_unreadable_run_is_one_sentence_and_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", tmp_path / "nowhere"):
        assert main(["diagnose", str(path)]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.count("\n") == 1
        assert "ampscope run" in captured.err or "name a run directory" in captured.err


def test_wrong_severity(warned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", str(warned), "--fail-on", "bad"]) == 2
    assert "--fail-on" in capsys.readouterr().err


def test_an_older_schema_is_read_and_a_newer_one_refused(
    warned: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = warned / "run.json"
    made = json.loads(record.read_text())
    for version, status in (([1, 0], 0), ([1, 99], 0), ([2, 0], 2)):
        record.write_text(json.dumps({**made, "schema": version}))
        assert main(["diagnose", str(warned)]) == status
        captured = capsys.readouterr()
        assert ("upgrade" in captured.err) == (status == 2)


def test_damage_is_named(warned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    part = next((warned / "steps").rglob("*.parquet"))
    part.write_bytes(part.read_bytes()[:-9])
    assert main(["diagnose", str(warned)]) == 0
    assert "could not be read" in " ".join(capsys.readouterr().out.split())
