"""Which source files may be edited: the user's own, unchanged since the run. Reads them, writes none."""

from __future__ import annotations

import hashlib
import os
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from ampscope.patch.refused import Refused
from ampscope.trace.records import RunInfo

CHANGED = ""
"""Stands for the hash of a file that changed while the run went on."""

_INSTALLED = ("site-packages", "dist-packages")


@dataclass(frozen=True)
class SourceFile:
    """One file of the user's. `shown` is its path as a diff names it: relative to where the run was started
    when it lies below that; `recorded` is its name in the trace."""

    path: Path
    shown: str
    data: bytes
    recorded: str


def read_source(info: RunInfo, file: str | None) -> SourceFile:
    """The file that a finding of the run `info` names, as it was when it ran.

    Raises Refused when there is no such file, it is not the user's own, or it changed since.
    """
    if not file:
        raise Refused("the run recorded no source line for it")
    path = Path(info.cwd, file)
    shown = shown_path(path, info.cwd)
    if not is_users(path):
        raise Refused(f"{shown} is not a file of your own")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise Refused(f"{shown} cannot be read ({error.strerror or error})") from error
    if has_changed(info, path, data):
        raise Refused(f"{shown} changed since the run: record it again")
    return SourceFile(path, shown, data, file)


def shown_path(path: Path, cwd: str) -> str:
    """`path` relative to the directory `cwd` when it lies below it, else absolute."""
    relative = os.path.relpath(path, cwd or ".")
    return str(path) if relative.startswith(os.pardir) else relative


def is_users(path: Path) -> bool:
    """Whether `path` is a Python file outside of installed packages, the standard library and ampscope."""
    real = Path(os.path.realpath(path))
    if path.suffix != ".py" or any(part in _INSTALLED for part in (*path.parts, *real.parts)):
        return False
    ours = Path(__file__).resolve().parents[1]
    return not any(real.is_relative_to(folder) for folder in (ours, *_library_folders()))


def _library_folders() -> Iterable[Path]:
    for name in ("stdlib", "platstdlib"):
        yield Path(os.path.realpath(sysconfig.get_path(name)))
    yield Path(sys.base_prefix, "lib", f"python{sys.version_info[0]}.{sys.version_info[1]}").resolve()


def has_changed(info: RunInfo, path: Path, data: bytes) -> bool:
    """Whether a file with the content `data` is another than the one that ran.

    By the hash that the run recorded; where it recorded none, as after a SIGKILL, by the time of change.
    """
    known = [
        process.sources[key] for process in info.processes for key in process.sources if _same(key, path)
    ]
    if known:
        return hashlib.sha256(data).hexdigest() not in known
    began = _seconds(info.start)
    return began is not None and path.stat().st_mtime > began


def changed_sources(info: RunInfo) -> list[str]:
    """The recorded files of the run that are gone or have other content now, as a user names them."""
    changed = []
    for key in sorted({key for process in info.processes for key in process.sources}):
        path = Path(key)
        try:
            other = has_changed(info, path, path.read_bytes())
        except OSError:
            other = True
        if other:
            changed.append(shown_path(path, info.cwd))
    return changed


def _same(key: str, path: Path) -> bool:
    return os.path.realpath(key) == os.path.realpath(path)


def _seconds(stamp: str) -> float | None:
    try:
        return datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None
