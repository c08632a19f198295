"""No orphan: when the supervising parent is killed, the child is killed too.

On Linux the kernel does it (PR_SET_PDEATHSIG); elsewhere a small process waits for a pipe to close.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def kernel_bond(signal_number: int = signal.SIGKILL) -> Callable[[], None] | None:
    """What the child calls before exec so that the kernel signals it when its parent dies; None off Linux.

    The C function is looked up here, before the fork: the child only calls it.
    """
    if not sys.platform.startswith("linux"):
        return None
    import ctypes

    try:
        prctl = ctypes.CDLL(None, use_errno=True).prctl
    except (OSError, AttributeError):
        return None
    parent = os.getpid()

    def bind() -> None:
        prctl(_PR_SET_PDEATHSIG, int(signal_number), 0, 0, 0)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal_number)

    return bind


def watchdog(child: int) -> Callable[[], None]:
    """Starts a process that kills `child` once the calling process is gone; returns what calls it off."""
    read_end, write_end = os.pipe()
    dog = os.fork()
    if dog == 0:
        _guard(child, read_end, write_end)
    os.close(read_end)

    def call_off() -> None:
        os.write(write_end, b"x")
        os.close(write_end)
        os.waitpid(dog, 0)

    return call_off


def _guard(child: int, read_end: int, write_end: int) -> None:
    """Body of the watchdog process. It holds no standard stream, so that no pipe stays open because of it."""
    try:
        os.setsid()
        os.close(write_end)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nowhere, descriptor)
        if os.read(read_end, 1) == b"":
            os.kill(child, signal.SIGKILL)
    finally:
        os._exit(0)
