"""One child process out of sight: its output goes to a file, and it is ended once there is enough of it.

Knows nothing of traces. Ctrl-C ends the child as well.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ampscope.errors import AmpscopeError
from ampscope.launch import orphans
from ampscope.launch.supervise import Ended

POLL_S = 0.1
PATIENCE_S = 10.0
"""How long a child that was asked to end may take for it."""


def run_child(
    argv: Sequence[str], cwd: Path, env: Mapping[str, str], log: Path, enough: Callable[[], bool]
) -> tuple[Ended, bool]:
    """How the child ended, and whether it was ended because `enough()` said so. `enough` is asked a few times
    per second at most.

    Raises AmpscopeError when the command cannot be started.
    """
    try:
        with open(log, "wb") as output:
            child = subprocess.Popen(
                argv,
                cwd=cwd,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=orphans.kernel_bond(),
            )
    except OSError as error:
        raise AmpscopeError(f"{argv[0]} could not be started: {error.strerror or error}.") from error
    try:
        stopped = _wait(child, enough)
    except BaseException:
        _end(child)
        raise
    code = child.returncode
    return (Ended(code, None) if code >= 0 else Ended(None, -code)), stopped


def _wait(child: subprocess.Popen[bytes], enough: Callable[[], bool]) -> bool:
    asked = time.monotonic()
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(POLL_S)
            return False
        # Asking may cost more than waiting: at most a tenth of the time goes into it.
        if time.monotonic() >= asked:
            began = time.monotonic()
            if enough():
                _end(child)
                return True
            asked = time.monotonic() + max(POLL_S, 10 * (time.monotonic() - began))


def _end(child: subprocess.Popen[bytes]) -> None:
    """Ends the child and what it started: politely first."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(PATIENCE_S)
            return
    child.wait()
