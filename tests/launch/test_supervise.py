"""The supervising parent is invisible: end, signals, mask and descriptors are what a shell gives the child."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from ampscope.errors import AmpscopeError
from ampscope.launch.supervise import Ended, supervise

RUN = "import os, sys; from ampscope.launch.supervise import leave_like, supervise; "
RUN += "sys.exit(leave_like(supervise(sys.argv[1:], dict(os.environ))))"


def supervised(argv: Sequence[str]) -> list[str]:
    return [sys.executable, "-c", RUN, *argv]


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


@pytest.mark.parametrize(
    ("shell", "ended"),
    [
        ("exit 0", Ended(0, None)),
        ("exit 3", Ended(3, None)),
        ("kill -TERM $$", Ended(None, signal.SIGTERM)),
        ("kill -KILL $$", Ended(None, signal.SIGKILL)),
    ],
)
def test_end(shell: str, ended: Ended) -> None:
    assert supervise(["sh", "-c", shell], os.environ) == ended


def test_nothing_is_left_changed() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ()), signal.getsignal(signal.SIGCHLD)
    supervise(["true"], os.environ)
    assert (signal.pthread_sigmask(signal.SIG_BLOCK, ()), signal.getsignal(signal.SIGCHLD)) == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL, signal.SIGSEGV])
def test_dies_by_the_signal_of_the_child(number: signal.Signals) -> None:
    done = subprocess.run(supervised(["sh", "-c", f"kill -{int(number)} $$"]), check=False)
    assert done.returncode == -number


def test_a_command_that_cannot_start(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("#!/no/such/interpreter\n")
    (tmp_path / "plain").chmod(0o644)
    (tmp_path / "bad").write_text("#!/no/such/interpreter\n")
    (tmp_path / "bad").chmod(0o755)
    for name, code in [("missing", 127), ("plain", 126), ("bad", 127)]:
        with pytest.raises(AmpscopeError, match=name) as caught:
            supervise([str(tmp_path / name)], os.environ)
        assert caught.value.exit_code == code


def test_a_script_without_an_interpreter_line_goes_to_the_shell(tmp_path: Path) -> None:
    script = tmp_path / "go"
    script.write_text("exit $1\n")
    script.chmod(0o755)
    assert supervise([str(script), "7"], os.environ) == Ended(7, None)


STATE = """
import os, signal
print(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())))
print([(int(n), str(signal.getsignal(n))) for n in sorted(signal.valid_signals())])
print(sorted(os.listdir("/proc/self/fd")), os.getpgrp(), os.getsid(0), os.getcwd())
print(sorted(os.environ.items()))
"""


def test_the_child_sees_what_a_shell_would_give() -> None:
    read_end, write_end = os.pipe()
    os.set_inheritable(read_end, True)
    try:
        command = [python(STATE), supervised(python(STATE))]
        plain, seen = (
            subprocess.run(c, stdout=subprocess.PIPE, pass_fds=[read_end], check=True).stdout for c in command
        )
    finally:
        os.close(read_end)
        os.close(write_end)
    assert seen == plain
    assert str(read_end).encode() in plain


def test_signals_that_our_parent_ignores_stay_ignored() -> None:
    code = (
        "import signal; print([signal.getsignal(n) for n in (signal.SIGHUP, signal.SIGINT, signal.SIGCHLD)])"
    )

    def ignore() -> None:
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, signal.SIG_IGN)

    plain, seen = (
        subprocess.run(command, stdout=subprocess.PIPE, preexec_fn=ignore, check=True).stdout
        for command in (python(code), supervised(python(code)))
    )
    assert seen == plain
    assert plain.count(b"SIG_IGN") == 3


LISTEN = """
import os, signal, time
count = []
for n in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
    signal.signal(n, lambda n, _: count.append(n))
print("ready", flush=True)
end = time.monotonic() + {seconds}
while time.monotonic() < end and len(count) < {wanted}:
    time.sleep(0.02)
time.sleep(0.3)
print([int(n) for n in count])
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP])
def test_a_signal_to_the_parent_reaches_the_child_once(number: signal.Signals) -> None:
    command = supervised(python(LISTEN.format(seconds=20, wanted=1)))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "ready\n"
        parent.send_signal(number)
        assert parent.stdout.read() == f"[{int(number)}]\n"
    assert parent.returncode == 0


def test_a_child_that_signals_its_parent_is_not_answered() -> None:
    code = LISTEN.format(seconds=0.3, wanted=1).replace(
        "end =", "os.kill(os.getppid(), signal.SIGUSR1); end ="
    )
    done = subprocess.run(supervised(python(code)), stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout == "ready\n[]\n"


def in_terminal(command: list[str], keys: bytes, wait_for: bytes) -> tuple[bytes, int]:
    """Runs `command` in a terminal of its own and types `keys` once it shows `wait_for`: output, wait status."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(command[0], command)
    output = b""
    typed = False
    while True:
        try:
            got = os.read(terminal, 4096)
        except OSError:
            got = b""
        if not got:
            break
        output += got
        if not typed and wait_for in output:
            typed = True
            os.write(terminal, keys)
    os.close(terminal)
    return output, os.waitpid(pid, 0)[1]


def test_ctrl_c_at_a_terminal_reaches_the_child_once() -> None:
    command = python(LISTEN.format(seconds=20, wanted=1))
    for run in (command, supervised(command)):
        output, status = in_terminal(run, b"\x03", b"ready")
        assert output.splitlines()[-1].endswith(b"[2]")
        assert status == 0


def test_ctrl_c_at_a_terminal_ends_by_sigint() -> None:
    _, status = in_terminal(supervised(python("import time; print('ready', flush=True); time.sleep(20)")),
                            b"\x03", b"ready")  # fmt: skip
    assert os.WTERMSIG(status) == signal.SIGINT


def state_of(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0]


def wait_state(pid: int, state: str) -> None:
    for _ in range(500):
        if state_of(pid) in state:
            return
        time.sleep(0.02)
    raise AssertionError(f"{pid} is {state_of(pid)}, not {state}")


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="reads process states from /proc")
def test_job_control_stops_and_continues_both() -> None:
    code = "import os; print(os.getpid(), flush=True); input(); print('end')"
    with subprocess.Popen(
        supervised(python(code)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.send_signal(signal.SIGTSTP)
        wait_state(parent.pid, "T")
        wait_state(child, "T")
        parent.send_signal(signal.SIGCONT)
        wait_state(child, "SR")
        out, _ = parent.communicate("\n")
    assert (out, parent.returncode) == ("end\n", 0)
