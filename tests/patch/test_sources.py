from __future__ import annotations

import hashlib
import os
import sysconfig
from pathlib import Path

import pytest

from ampscope.patch.refused import Refused
from ampscope.patch.sources import CHANGED, changed_sources, is_users, read_source, shown_path
from ampscope.trace.records import ProcessInfo, RunInfo

TEXT = b"x = 1\n"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "train.py"
    file.write_bytes(TEXT)
    return file


def run_of(folder: Path, sources: dict[str, str], start: str = "2020-01-01T00:00:00.000Z") -> RunInfo:
    return RunInfo(cwd=str(folder), start=start, processes=(ProcessInfo(sources=sources),))


def test_a_file_that_is_what_ran(script: Path) -> None:
    info = run_of(script.parent, {str(script): hashlib.sha256(TEXT).hexdigest()})
    file = read_source(info, str(script))
    assert (file.path, file.shown, file.data) == (script, "train.py", TEXT)
    assert read_source(info, "train.py").path == script
    assert changed_sources(info) == []


@pytest.mark.parametrize("known", [hashlib.sha256(b"x = 2\n").hexdigest(), CHANGED])
def test_a_file_that_changed_since_or_meanwhile(script: Path, known: str) -> None:
    info = run_of(script.parent, {str(script): known})
    with pytest.raises(Refused, match=r"train\.py changed since the run"):
        read_source(info, str(script))
    assert changed_sources(info) == ["train.py"]


def test_without_a_hash_the_time_of_change_decides(script: Path) -> None:
    with pytest.raises(Refused, match="changed since the run"):
        read_source(run_of(script.parent, {}), str(script))
    later = run_of(script.parent, {}, start="2999-01-01T00:00:00.000Z")
    assert read_source(later, str(script)).data == TEXT


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    info = run_of(tmp_path, {str(tmp_path / "gone.py"): "ab"})
    with pytest.raises(Refused, match="cannot be read"):
        read_source(info, str(tmp_path / "gone.py"))
    assert changed_sources(info) == ["gone.py"]


def test_no_file_at_all(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="no source line"):
        read_source(run_of(tmp_path, {}), None)


@pytest.mark.parametrize(
    "name",
    [
        "/usr/lib/python3/dist-packages/lib/x.py",
        "/home/me/.venv/lib/python3.11/site-packages/lib/x.py",
        os.path.join(sysconfig.get_path("stdlib"), "random.py"),
        os.path.join(os.path.dirname(__file__), "..", "..", "ampscope", "errors.py"),
        "/home/me/notes.txt",
        "<stdin>",
    ],
)
def test_what_is_not_the_users_is_never_read(name: str, tmp_path: Path) -> None:
    assert not is_users(Path(name))
    with pytest.raises(Refused, match="is not a file of your own"):
        read_source(run_of(tmp_path, {}), name)


def test_a_link_into_an_installed_package_is_not_the_users(tmp_path: Path) -> None:
    package = tmp_path / "site-packages" / "lib.py"
    package.parent.mkdir()
    package.write_bytes(TEXT)
    link = tmp_path / "mine.py"
    link.symlink_to(package)
    assert not is_users(link)


def test_paths_are_shown_below_where_the_run_was_started() -> None:
    assert shown_path(Path("/home/me/pkg/a.py"), "/home/me") == "pkg/a.py"
    assert shown_path(Path("/opt/a.py"), "/home/me") == "/opt/a.py"
