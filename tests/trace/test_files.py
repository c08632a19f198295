from __future__ import annotations

import os
from pathlib import Path

import pytest

from ampscope.trace.files import read_json, write_atomic, write_json


def test_write_replaces_the_whole_content(tmp_path: Path) -> None:
    path = tmp_path / "f"
    write_atomic(path, b"a long first content")
    write_atomic(path, b"short")
    assert path.read_bytes() == b"short"
    assert os.listdir(tmp_path) == ["f"]


def test_a_failed_write_keeps_the_old_file_and_leaves_no_temporary(tmp_path: Path) -> None:
    path = tmp_path / "d"
    path.mkdir()
    (path / "inside").touch()
    with pytest.raises(OSError, match=r"\w"):
        write_atomic(path, b"x")
    assert os.listdir(tmp_path) == ["d"]
    assert (path / "inside").exists()


def test_json_round_trip_keeps_text_that_is_not_ascii(tmp_path: Path) -> None:
    write_json(tmp_path / "j", {"cwd": "/home/zoë/π", "n": 3})
    assert read_json(tmp_path / "j") == {"cwd": "/home/zoë/π", "n": 3}


def test_json_accepts_a_file_name_that_is_not_utf8(tmp_path: Path) -> None:
    write_json(tmp_path / "j", {"command": [os.fsdecode(b"\xff.py")]})
    assert read_json(tmp_path / "j") == {"command": ["?.py"]}


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe", b"[" * 100_000])
def test_unreadable_json_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "j").write_bytes(content)
    assert read_json(tmp_path / "j") is None


def test_missing_json_is_none(tmp_path: Path) -> None:
    assert read_json(tmp_path / "j") is None
