from __future__ import annotations

import hashlib
import time
from pathlib import Path

from ampscope.hooks.sources import source_hashes


def test_what_ran_is_known_by_its_hash(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("x = 1\n")
    assert source_hashes([str(file)], time.time() + 60) == {str(file): hashlib.sha256(b"x = 1\n").hexdigest()}


def test_a_file_written_while_the_process_ran_has_no_hash(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("x = 1\n")
    assert source_hashes([str(file)], file.stat().st_mtime - 1) == {str(file): ""}


def test_what_is_no_file_is_left_out(tmp_path: Path) -> None:
    assert source_hashes(["<stdin>", str(tmp_path), str(tmp_path / "gone.py"), "a\0b"], 0.0) == {}
