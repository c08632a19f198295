from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ampscope.patch.overlay import make_overlay
from ampscope.patch.plan import FilePatch
from ampscope.patch.refused import Refused

MAIN = b"""\
import sys
from pkg import loop
from pkg import other
print(loop.X, other.Y, open('data/d.txt').read(), sys.argv[1:])
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "pkg").mkdir(parents=True)
    (root / "data").mkdir()
    (root / "main.py").write_bytes(MAIN)
    (root / "pkg" / "__init__.py").write_bytes(b"")
    (root / "pkg" / "loop.py").write_bytes(b"X = 1\n")
    (root / "pkg" / "other.py").write_bytes(b"Y = 5\n")
    (root / "data" / "d.txt").write_text("d")
    return root


def patch_of(file: Path, after: bytes) -> FilePatch:
    return FilePatch(file, file.name, file.read_bytes(), after)


@pytest.mark.parametrize("words", [["main.py", "data"], ["-m", "main", "x"]])
def test_the_copy_runs_with_the_patch_in_it(project: Path, tmp_path: Path, words: list[str]) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    argv = [sys.executable, *words]
    overlay = make_overlay(copy, project, [patch_of(project / "pkg" / "loop.py", b"X = 2\n")], argv)
    done = subprocess.run(
        overlay.argv(argv, project), cwd=overlay.cwd(project), capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("2 5 d [")
    assert (project / "pkg" / "loop.py").read_bytes() == b"X = 1\n"
    assert not list(copy.rglob("d.txt.*"))


def test_paths_of_the_command_and_its_results_are_translated(project: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    main = project / "main.py"
    patch = patch_of(main, MAIN.replace(b"import sys\n", b"import sys\nwith q:\n    pass\n"))
    argv = ["python", str(main), "--data", "data", "nowhere", "-x"]
    overlay = make_overlay(copy, project, [patch], argv)
    assert overlay.argv(argv, project) == [
        "python", str(copy / "main.py"), "--data", str(copy / "data"), "nowhere", "-x",
    ]  # fmt: skip
    assert overlay.original(str(copy / "main.py"), 4) == (str(main), 2)
    assert overlay.original(str(copy / "main.py"), 2) == (str(main), None)
    assert overlay.original(str(copy / "pkg" / "other.py"), 1) == (str(project / "pkg" / "other.py"), 1)
    assert overlay.original("/elsewhere.py", 3) == ("/elsewhere.py", 3)


def test_a_rewritten_line_keeps_its_number(project: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    loop = project / "pkg" / "loop.py"
    loop.write_bytes(b"a\nb\nc\n")
    overlay = make_overlay(copy, project, [patch_of(loop, b"a\nwith q:\n    b2\nc\n")], ["python", "main.py"])
    copied = str(copy / "pkg" / "loop.py")
    assert [overlay.original(copied, line)[1] for line in (1, 2, 3, 4)] == [1, None, 2, 3]


def test_started_from_elsewhere(project: Path, tmp_path: Path) -> None:
    copy, cwd = tmp_path / "copy", tmp_path / "elsewhere"
    copy.mkdir()
    cwd.mkdir()
    patch = patch_of(project / "main.py", MAIN)
    overlay = make_overlay(copy, cwd, [patch], ["python", "../project/main.py"])
    assert overlay.root == project
    assert overlay.cwd(cwd) == cwd
    assert overlay.argv(["python", "../project/main.py"], cwd) == ["python", str(copy / "main.py")]


def test_a_whole_file_system_is_not_copied(tmp_path: Path) -> None:
    patches = [
        FilePatch(Path("/a/x.py"), "/a/x.py", b"", b""),
        FilePatch(Path("/b/y.py"), "/b/y.py", b"", b""),
    ]
    with pytest.raises(Refused, match="share no folder"):
        make_overlay(tmp_path, tmp_path, patches, ["python", "x.py"])
