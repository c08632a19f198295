"""`ampscope doctor` sees what is there and what is missing."""

from __future__ import annotations

import re
from importlib.metadata import requires
from pathlib import Path

import pytest

from ampscope.commands import doctor, main
from ampscope.commands.doctor import Check, guarded, natively


def test_this_machine_can_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    for name in (*doctor.PACKAGES, "python", "cpu", "working directory"):
        assert name in out
    assert "3 steps recorded and read back" in out
    assert "\x1b" not in out
    assert list(tmp_path.iterdir()) == []


def test_a_missing_package_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(doctor, "PACKAGES", ("torch", "no-such-package-at-all"))
    assert main(["doctor", "--no-run"]) == 1
    out = capsys.readouterr().out
    assert "Not fit to record: no-such-package-at-all." in out


def test_an_older_torch_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "PACKAGES", ("torch",))
    monkeypatch.setattr(doctor, "TESTED_TORCH", (99, 0))
    assert [c.result for c in doctor.versions()] == ["ok", "note"]


def test_a_child_that_we_cannot_reach_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "PROBE", "print('no torch here')")
    assert [(c.name, c.result) for c in doctor.recording()] == [("tiny run", "FAIL")]
    monkeypatch.setattr(doctor, "PROBE", "raise SystemExit('broken')")
    (check,) = doctor.recording()
    assert (check.result, "broken" in check.detail) == ("FAIL", True)


def test_an_exception_is_a_failed_check() -> None:
    def odd() -> list[Check]:
        raise RuntimeError("driver")

    assert list(guarded(lambda: iter(odd()))) == [Check("<lambda>", "FAIL", "RuntimeError: driver")]


def test_a_folder_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert [c.result for c in guarded(doctor.folder)] == ["FAIL"]
    monkeypatch.chdir(tmp_path)


def test_the_phrase_for_formats() -> None:
    assert natively(False, True) == "native fp16: no, native bf16: yes"


def test_every_dependency_is_looked_at() -> None:
    names = (re.match(r"[\w-]+", text) for text in requires("ampscope") or [] if ";" not in text)
    assert {name.group() for name in names if name} == set(doctor.PACKAGES)
