from __future__ import annotations

from pathlib import Path

import pytest

from ampscope.errors import AmpscopeError
from ampscope.patch.plan import FilePatch
from ampscope.patch.write import write_patches


def test_mode_and_links_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "real" / "train.py"
    file.parent.mkdir()
    file.write_bytes(b"old")
    file.chmod(0o755)
    link = tmp_path / "train.py"
    link.symlink_to(file)
    write_patches([FilePatch(link, "train.py", b"old", b"new")])
    assert link.is_symlink()
    assert file.read_bytes() == b"new"
    assert file.stat().st_mode & 0o777 == 0o755
    assert [p.name for p in file.parent.iterdir()] == ["train.py"]


def test_nothing_is_written_when_one_file_is_not_what_it_was(tmp_path: Path) -> None:
    one, two = tmp_path / "one.py", tmp_path / "two.py"
    one.write_bytes(b"old")
    two.write_bytes(b"edited")
    patches = [FilePatch(one, "one.py", b"old", b"new"), FilePatch(two, "two.py", b"old", b"new")]
    with pytest.raises(AmpscopeError, match=r"two\.py changed just now; nothing was changed"):
        write_patches(patches)
    assert one.read_bytes() == b"old"


def test_a_file_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "train.py"
    file.write_bytes(b"old")
    # Root may write anything: ask as somebody who may not.
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(AmpscopeError, match=r"train\.py cannot be written; nothing was changed"):
        write_patches([FilePatch(file, "train.py", b"old", b"new")])
