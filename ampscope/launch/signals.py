"""Which signals the supervising parent waits for, and who sent one: the terminal reaches the child by itself.

Knows nothing of processes or traces.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass

_FAULTS = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP", "SIGABRT", "SIGSYS")
"""Raised by the parent's own faults: blocking them would hide a crash."""


@dataclass(frozen=True)
class Received:
    """`to_group`: the terminal or the kernel sent it to the whole process group. `sender`: pid or 0."""

    number: int
    to_group: bool
    sender: int


def waitable() -> frozenset[int]:
    """Every signal that can be blocked and is not the trace of a fault."""
    never = {getattr(signal, name, None) for name in (*_FAULTS, "SIGKILL", "SIGSTOP")}
    return frozenset(int(number) for number in signal.valid_signals() if number not in never)


def wait(numbers: Iterable[int]) -> Received:
    """The next of the signals `numbers`, all of them blocked."""
    if hasattr(signal, "sigwaitinfo"):
        info = signal.sigwaitinfo(numbers)
        # sigaction(2): si_code > 0 comes from the kernel, <= 0 from a process (kill, tgkill, sigqueue).
        return Received(info.si_signo, info.si_code > 0, info.si_pid)
    number = int(signal.sigwait(numbers))
    keys = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGWINCH)
    return Received(number, number in keys and _in_foreground(), 0)


def drop_pending(numbers: Iterable[int]) -> None:
    """Forgets the signals that came while nobody waited any more."""
    wanted = set(numbers)
    while pending := wanted & signal.sigpending():
        signal.sigwait(pending)


def _in_foreground() -> bool:
    for descriptor in (0, 1, 2):
        try:
            return os.tcgetpgrp(descriptor) == os.getpgrp()
        except OSError:
            continue
    return False
