"""The fork server stands in for plain `python`: here the two are compared."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.forkserver import ForkServer

SCRIPTS = {
    "prints": "import sys; print(__name__, sys.argv, sys.path[0] == __file__.rsplit('/', 1)[0])",
    "status": "import sys; sys.exit(3)",
    "message": "import sys; sys.exit('no data')",
    "traceback": "def f():\n    raise ValueError('bad')\nf()\n",
    "chained": "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise KeyError('x') from e\n",
    "atexit": "import atexit, threading, time\natexit.register(print, 'end')\n"
    "threading.Thread(target=lambda: (time.sleep(0.05), print('thread'))).start()",
    "killed": "import os, signal; print('x', flush=True); os.kill(os.getpid(), signal.SIGTERM)",
    "pickles": "import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))) is A)",
    "stdin": "import sys; print(repr(sys.stdin.read()))",
    "syntax": "x = = 1\n",
    "interrupted": "raise SystemExit",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_behaves_as_python_does(name: str, fork_server: ForkServer, tmp_path: Path) -> None:
    script = tmp_path / f"{name}.py"
    script.write_text(SCRIPTS[name])
    command = [sys.executable, str(script), "--flag", "a b"]
    plain = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)

    forked = fork_server.run(script, ["--flag", "a b"])

    assert (forked.status, forked.stdout) == (plain.returncode, plain.stdout)
    assert forked.stderr == plain.stderr


def test_a_script_that_hangs_is_ended(fork_server: ForkServer, tmp_path: Path) -> None:
    script = tmp_path / "hangs.py"
    script.write_text("import time; print('begun', flush=True); time.sleep(600)")

    outcome = fork_server.run(script, timeout=0.5)

    assert outcome.timed_out
    assert (outcome.status, outcome.stdout) == (-9, "begun\n")


def test_cases_do_not_see_each_other(fork_server: ForkServer, tmp_path: Path) -> None:
    script = tmp_path / "leaves_traces.py"
    script.write_text(
        "import os, sys, torch\n"
        "print(os.environ.get('LEFT'), hasattr(torch, 'left'), torch.initial_seed() == 7)\n"
        "os.environ['LEFT'] = '1'; torch.left = 1; torch.manual_seed(7)\n"
    )

    first, second = fork_server.run(script), fork_server.run(script)

    assert first.stdout == second.stdout == "None False False\n"


def test_the_environment_is_given_per_script(fork_server: ForkServer, tmp_path: Path) -> None:
    script = tmp_path / "env.py"
    script.write_text("import os; print(os.environ.get('CASE'), os.getcwd())")

    outcome = fork_server.run(script, env={"CASE": "1"}, cwd=tmp_path)

    assert outcome.stdout == f"1 {tmp_path}\n"
    assert fork_server.run(script, cwd=tmp_path).stdout == f"None {tmp_path}\n"
