from __future__ import annotations

import os
from pathlib import Path

import pytest

from ampscope.trace.checksum import problem, seal
from ampscope.trace.encode import Misfits, arrow_table, part_bytes
from ampscope.trace.schema import TABLES


@pytest.fixture(scope="module")
def sealed() -> bytes:
    rows = [{"t": float(i), "event": "note", "message": f"event {i}"} for i in range(40)]
    return part_bytes(arrow_table(TABLES["events"], rows, Misfits()))


def test_a_sealed_file_is_whole(tmp_path: Path, sealed: bytes) -> None:
    path = tmp_path / "part"
    path.write_bytes(sealed)
    assert problem(path) is None


def test_any_flipped_bit_is_found(tmp_path: Path, sealed: bytes) -> None:
    """Every byte of the file: pages, page headers, footer, checksum, magic."""
    path = tmp_path / "part"
    path.write_bytes(sealed)
    with open(path, "r+b") as f:
        for at in range(len(sealed)):
            os.pwrite(f.fileno(), bytes([sealed[at] ^ (1 << at % 8)]), at)
            assert problem(path) is not None, at
            os.pwrite(f.fileno(), sealed[at : at + 1], at)
    assert problem(path) is None


def test_any_truncation_is_found(tmp_path: Path, sealed: bytes) -> None:
    path = tmp_path / "part"
    path.write_bytes(sealed)
    for size in reversed(range(len(sealed))):
        os.truncate(path, size)
        assert problem(path) is not None, size


def test_appended_bytes_are_found(tmp_path: Path, sealed: bytes) -> None:
    path = tmp_path / "part"
    for tail in (b"\0", b"PAR1", sealed):
        path.write_bytes(sealed + tail)
        assert problem(path) is not None


def test_what_is_no_regular_file_is_named_and_not_waited_for(tmp_path: Path, sealed: bytes) -> None:
    (tmp_path / "file").write_bytes(sealed)
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "dir").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "dir", "pipe"):
        assert problem(tmp_path / name) == "not a regular file"
    assert problem(tmp_path / "gone") == "cannot be opened: No such file or directory"


def test_only_a_blank_seal_is_filled_in(sealed: bytes) -> None:
    with pytest.raises(ValueError, match=r"no blank ampscope\.crc32"):
        seal(sealed)
    with pytest.raises(ValueError, match=r"no blank ampscope\.crc32"):
        seal(b"PAR1")
