"""`ampscope demo` goes the whole way on the example that ships."""

from __future__ import annotations

from pathlib import Path

import pytest

from ampscope.commands import main
from ampscope.commands.demo import example


def test_the_example_is_found() -> None:
    assert example().name == "char_gpt.py"
    assert "--steps" in example().read_text()


def test_it_records_and_diagnoses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert main(["demo", "--steps", "4", "--no-view"]) == 0
    out, err = capfd.readouterr()
    assert out.count("loss ") >= 4
    assert "recorded 4 steps in ampscope-runs/demo-" in err
    assert "next: ampscope view ampscope-runs/demo-" in err
    assert (tmp_path / "ampscope-runs" / "latest" / "COMPLETE").exists()
