"""Is the process that wrote this still running? Answered without signals, and not fooled by a reused pid.

Standard library only. A process is known by its pid, its start time and the boot and pid namespace they hold
in; no host name is stored.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
from dataclasses import dataclass


@dataclass(frozen=True)
class Identity:
    """`start` is the kernel's start time of the process in clock ticks since boot; 0 where there is no /proc.
    `boot` and `host` are short hashes; they differ after a reboot, and on another machine or in another
    container."""

    pid: int = 0
    start: int = 0
    boot: str = ""
    host: str = ""


def current() -> Identity:
    """Identity of the calling process."""
    boot, host = _boot(), _host()
    return Identity(os.getpid(), _stat(os.getpid())[1], boot, host)


def alive(who: Identity) -> bool | None:
    """True or False where it can be told; None for a process of another machine or container.

    A zombie is not alive: it writes no more.
    """
    if who.host != _host():
        return None
    if who.pid <= 0 or who.boot != _boot():
        return False
    if not os.path.isdir("/proc/self"):
        return _signal_reaches(who.pid)
    state, start = _stat(who.pid)
    return state not in ("", "Z", "X") and start == who.start


def _stat(pid: int) -> tuple[str, int]:
    """(state letter, start time in ticks); ("", 0) when there is no such process or no /proc."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:
            fields = f.read().rpartition(b")")[2].split()
        return fields[0].decode(), int(fields[19])
    except (OSError, IndexError, ValueError):
        return "", 0


def _signal_reaches(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return True


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]


def _boot() -> str:
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id") as f:
        return _short_hash(f.read())
    return ""


def _host() -> str:
    namespace = ""
    with contextlib.suppress(OSError):
        namespace = os.readlink("/proc/self/ns/pid")
    return _short_hash(socket.gethostname() + namespace)
