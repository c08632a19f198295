"""Whose run it was: directories, users and hosts to hide in its report, and the names of the model to keep."""

from __future__ import annotations

import getpass
import re
import socket
from pathlib import Path, PurePath

from ampscope.report.query import TraceView, fetch
from ampscope.report.redact import Redactor
from ampscope.trace.records import RunInfo

_NAMES = """
SELECT DISTINCT name FROM tensors UNION SELECT DISTINCT module FROM tensors
UNION SELECT DISTINCT name FROM updates UNION SELECT DISTINCT module FROM updates
UNION SELECT DISTINCT name FROM params UNION SELECT DISTINCT module FROM params
UNION SELECT DISTINCT name FROM modules UNION SELECT DISTINCT class_name FROM modules
UNION SELECT DISTINCT op FROM ops UNION SELECT DISTINCT module FROM ops
UNION SELECT DISTINCT name FROM nonfinite UNION SELECT DISTINCT object FROM calls
UNION SELECT DISTINCT name FROM kernels
"""
_HOME = re.compile(r"^(/home/[^/]+|/Users/[^/]+|/root|[A-Za-z]:[\\/]Users[\\/][^\\/]+)")


def redactor_for(trace: TraceView, enabled: bool = True) -> Redactor:
    """A redactor for reports of `trace`: it knows the directories of the run and this machine's user and host."""
    info = trace.info
    scripts = (p.script for p in info.processes)
    homes = [m[1] for path in (info.cwd, info.python, *info.command, *scripts) if (m := _HOME.match(path))]
    own_home, own_user = _own_home(), _own_user()
    home = homes[0] if homes else own_home
    users = {own_user, *(re.split(r"[\\/]", h)[-1] for h in homes), Path(own_home).name if own_home else ""}
    names = [r["name"] for r in fetch(trace, _NAMES) if r["name"]] if enabled else []
    return Redactor(
        roots=_roots(info),
        home=home or None,
        users=sorted(u for u in users if u),
        hosts=sorted({socket.gethostname(), socket.getfqdn()} - {""}) if enabled else (),
        keep=names,
        enabled=enabled,
    )


def _roots(info: RunInfo) -> list[str]:
    """Working directory and the directories of the scripts, but none that is the parent of many."""
    scripts = [PurePath(p.script) for p in info.processes if p.script]
    folders = [str(s.parent) for s in scripts if s.is_absolute() and len(s.parent.parts) > 2]
    return [root for root in (info.cwd, *folders) if root and not _HOME.fullmatch(root)]


def _own_user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""


def _own_home() -> str:
    try:
        return str(Path.home())
    except RuntimeError:
        return ""
