"""A child does not outlive a parent that was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from ampscope.launch import orphans

PARENT = """
import os, subprocess, sys, time
from ampscope.launch import orphans
if {kernel}:
    child = subprocess.Popen(["sleep", "60"], preexec_fn=orphans.kernel_bond())
else:
    child = subprocess.Popen(["sleep", "60"])
    orphans.watchdog(child.pid)
print(child.pid, flush=True)
time.sleep(60)
"""


def gone(pid: int, seconds: float = 10) -> bool:
    """True once `pid` has ended; nobody else may reap it, so a zombie counts as ended."""
    for _ in range(int(seconds * 50)):
        try:
            with open(f"/proc/{pid}/stat") as stat:
                if stat.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except FileNotFoundError:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("kernel", [True, False])
def test_a_killed_parent_takes_its_child_along(kernel: bool) -> None:
    if kernel and not sys.platform.startswith("linux"):
        pytest.skip("only Linux has PR_SET_PDEATHSIG")
    code = PARENT.format(kernel=kernel)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        os.kill(parent.pid, signal.SIGKILL)
        assert gone(child)


def test_a_watchdog_that_is_called_off_leaves_the_child_alone() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        orphans.watchdog(child.pid)()
        out, _ = child.communicate(b"alive")
    assert (out, child.returncode) == (b"alive", 0)
