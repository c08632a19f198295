"""Runs one command as a child and is invisible in between: signals, job control and the end are the child's.

Knows nothing of traces. One child at a time, from the main thread of a process without other threads.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ampscope.errors import AmpscopeError
from ampscope.launch import orphans, signals

_EXIT_CODES = {errno.ENOENT: 127, errno.ENOTDIR: 127, errno.EAGAIN: 125, errno.ENOMEM: 125}
"""env(1): not found; no process to be had. Everything else is 126."""

_JOB_CONTROL = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)


@dataclass(frozen=True)
class Ended:
    """How the child ended: its exit status, or the number of the signal that killed it; the other is None."""

    status: int | None
    signal: int | None


def supervise(argv: Sequence[str], env: Mapping[str, str]) -> Ended:
    """Starts `argv` with environment `env` and returns when it has ended.

    Signals that a process sent to us go on to the child; those of the terminal it has already. Raises
    AmpscopeError with 127 for a command that is not found, 126 for one that cannot be executed, 125 when the
    system has no room for one more process.
    """
    waited = signals.waitable()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    reaping = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        child = _start(argv, env, before, reaping == signal.SIG_IGN)
        call_off = None if sys.platform.startswith("linux") else orphans.watchdog(child.pid)
        ended = _wait(child.pid, waited)
        child.returncode = ended.status if ended.signal is None else -ended.signal
        if call_off is not None:
            call_off()
        signals.drop_pending(waited)
        return ended
    finally:
        signal.signal(signal.SIGCHLD, reaping)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave_like(ended: Ended) -> int:
    """Ends this process as the child ended: by the same signal, or with the exit status that is returned."""
    if ended.signal is None:
        return ended.status or 0
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    _no_core_dump()
    with contextlib.suppress(OSError, ValueError):
        signal.signal(ended.signal, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {ended.signal})
    os.kill(os.getpid(), ended.signal)
    return 128 + ended.signal


def _start(
    argv: Sequence[str], env: Mapping[str, str], mask: set[int], ignore_chld: bool
) -> subprocess.Popen[bytes]:
    bond = orphans.kernel_bond()

    def in_child() -> None:
        # Our own Python handler must not take a signal that arrives before exec.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        if ignore_chld:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        if bond is not None:
            bond()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def popen(words: Sequence[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(words, env=env, close_fds=False, preexec_fn=in_child)

    try:
        try:
            return popen(argv)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            # A script without `#!`: execvp(3) hands it to the shell.
            return popen(["/bin/sh", *argv])
    except OSError as error:
        code = _EXIT_CODES.get(error.errno or 0, 126)
        raise AmpscopeError(f"{argv[0]} could not be started: {error.strerror}.", code) from error


def _wait(child: int, waited: frozenset[int]) -> Ended:
    while True:
        received = signals.wait(waited)
        if received.number == signal.SIGCHLD:
            if (ended := _reap(child)) is not None:
                return ended
        elif not received.to_group and received.sender != child:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(child, received.number)


def _reap(child: int) -> Ended | None:
    pid, status = os.waitpid(child, os.WNOHANG | os.WUNTRACED)
    if pid == 0:
        return None
    if os.WIFSTOPPED(status):
        # Ctrl-Z stopped the child: the shell must see its job, this process, stopped as well.
        if os.WSTOPSIG(status) in _JOB_CONTROL:
            os.kill(os.getpid(), signal.SIGSTOP)
        return None
    code = os.waitstatus_to_exitcode(status)
    return Ended(code, None) if code >= 0 else Ended(None, -code)


def _no_core_dump() -> None:
    """The child has dumped its core if it was to: ours would take its place."""
    import resource

    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
