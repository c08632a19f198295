from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ampscope.trace.liveness import Identity, alive, current


def test_this_process_is_alive() -> None:
    assert alive(current()) is True


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")
def test_another_process_is_alive_until_it_is_reaped_or_a_zombie() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        fields = Path(f"/proc/{child.pid}/stat").read_bytes().rpartition(b")")[2].split()
        who = replace(current(), pid=child.pid, start=int(fields[19]))
        assert alive(who) is True
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert alive(who) is False, "a zombie writes no more"
    assert alive(who) is False


def test_a_reused_pid_is_not_the_process_that_wrote() -> None:
    me = current()
    assert alive(replace(me, start=me.start + 1)) is False


def test_before_a_reboot_is_dead_and_another_machine_is_unknown() -> None:
    me = current()
    assert alive(replace(me, boot="other")) is False
    assert alive(replace(me, host="other")) is None
    assert alive(Identity()) is None


def test_no_host_name_is_stored() -> None:
    import socket

    assert socket.gethostname() not in repr(current())
