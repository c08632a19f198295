from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from ampscope.diagnose import silence
from ampscope.diagnose.silence import read_silence
from ampscope.errors import AmpscopeError


def toml(folder: Path, text: str) -> Path:
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    return folder


def test_codes_and_names_with_reasons(tmp_path: Path) -> None:
    text = '[tool.ampscope]\nsilence = { AMP112 = "per epoch", clip-before-unscale = " on purpose " }\n'
    assert read_silence(toml(tmp_path, text)) == {"AMP112": "per epoch", "AMP101": "on purpose"}


@pytest.mark.parametrize("text", ["", "[tool.other]\nx = 1\n", "[tool.ampscope]\n"])
def test_nothing_to_silence(tmp_path: Path, text: str) -> None:
    assert read_silence(toml(tmp_path, text)) == {}


def test_no_file(tmp_path: Path) -> None:
    assert read_silence(tmp_path) == {}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('[tool.ampscope]\nsilence = { AMP999 = "x" }', "no diagnosis"),
        ('[tool.ampscope]\nsilence = { AMP112 = "" }', "without a reason"),
        ("[tool.ampscope]\nsilence = { AMP112 = 3 }", "without a reason"),
        ('[tool.ampscope]\nsilence = ["AMP112"]', "as a table"),
        ("[tool.ampscope\n", "not valid TOML"),
    ],
)
def test_one_sentence_for_each_mistake(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(AmpscopeError, match=sentence):
        read_silence(toml(tmp_path, text))


def test_python_3_10_reads_it_by_tomli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 14))
    monkeypatch.setitem(sys.modules, "tomllib", None)
    monkeypatch.setitem(sys.modules, "tomli", vars(silence)["tomllib"])
    again = runpy.run_path(silence.__file__)
    text = '[tool.ampscope]\nsilence = { AMP112 = "per epoch" }\n'
    assert again["read_silence"](toml(tmp_path, text)) == {"AMP112": "per epoch"}
