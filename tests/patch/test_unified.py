from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ampscope.patch.plan import FilePatch
from ampscope.patch.unified import unified


def patch_of(shown: str, before: str, after: str) -> FilePatch:
    return FilePatch(Path("/x") / shown, shown, before.encode(), after.encode())


def test_the_form_of_a_unified_diff() -> None:
    assert unified([patch_of("a/train.py", "x\ny\n", "x\nz\ny\n")]) == (
        "--- a/a/train.py\n+++ b/a/train.py\n@@ -1,2 +1,3 @@\n x\n+z\n y\n"
    )
    assert unified([]) == ""


def test_a_file_outside_of_the_project_keeps_its_whole_path() -> None:
    assert unified([patch_of("/opt/x.py", "a\n", "b\n")]).startswith("--- /opt/x.py\n+++ /opt/x.py\n")


@pytest.mark.skipif(shutil.which("patch") is None, reason="patch(1) is not installed")
@pytest.mark.parametrize(
    ("before", "after"),
    [("a\nb", "a\nc"), ("a\nb\n", "a\nb"),
     ("a\r\nb\r\n", "a\r\nx\r\nb\r\n"), ("a\x0cb\nc\n", "a\x0cb\nd\n"), ("\u00e9\n", "\u00e8\n")],
)  # fmt: skip
def test_patch_takes_it(tmp_path: Path, before: str, after: str) -> None:
    file = tmp_path / "train.py"
    file.write_bytes(before.encode())
    diff = unified([patch_of("train.py", before, after)])
    subprocess.run(
        ["patch", "-p1", "--binary"], cwd=tmp_path, input=diff.encode(), check=True, stdout=subprocess.DEVNULL
    )
    assert file.read_bytes() == after.encode()
