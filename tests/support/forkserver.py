"""A process that has torch imported already and forks one child per script: a case costs its own work only.

The child becomes what `python script.py` would be: fresh `__main__`, argv, path, streams, exit status and
traceback. With settings in its environment it is recorded, installed the way the bootstrap does it. Must not
do tensor work before a fork, or the children would inherit a dead thread pool.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

PRELOAD = (
    "numpy", "pyarrow.parquet", "torch", "torch._dynamo", "torch.utils.checkpoint", "torch.profiler",
    "ampscope.hooks.install",
)  # fmt: skip
"""Imported once, in the server. torch._dynamo is what the first optimizer of any script imports anyway, and the
recorder does nothing before it is installed."""


@dataclass(frozen=True)
class Outcome:
    """What one script did. `status` is its exit status, or minus the number of the signal that ended it;
    `timed_out` says that the server ended it. `seconds` is the wall time from fork to exit."""

    status: int
    stdout: str
    stderr: str
    seconds: float
    timed_out: bool


class ForkServer:
    """Owns one server process; use as a context manager. Not thread-safe: one script at a time."""

    def __init__(self) -> None:
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        env.pop("AMPSCOPE_SESSION", None)
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True
        )
        self._files = tempfile.TemporaryDirectory(prefix="forkserver-")

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the server: it leaves when its standard input closes."""
        self._process.communicate(timeout=30)
        self._files.cleanup()

    def run(
        self,
        script: Path,
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        timeout: float = 120.0,
    ) -> Outcome:
        """Run `script` as `__main__` in a fork with `env` added to the server's environment.

        Raises RuntimeError when the server itself is gone.
        """
        stdout, stderr = (Path(self._files.name) / name for name in ("stdout", "stderr"))
        request = {
            "script": str(script),
            "args": list(args),
            "env": dict(env or {}),
            "cwd": str(cwd or Path.cwd()),
            "timeout": timeout,
            "stdout": str(stdout),
            "stderr": str(stderr),
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError("the fork server ended; its message is on standard error")
        said = json.loads(answer)
        out, err = (path.read_text(encoding="utf-8", errors="replace") for path in (stdout, stderr))
        return Outcome(said["status"], out, err, said["seconds"], said["timed_out"])


def serve() -> None:
    """Read requests from standard input until it closes; in a child, return only by becoming the script."""
    for name in PRELOAD:
        __import__(name)
    gc.freeze()
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        request = json.loads(line)
        began = time.monotonic()
        child = os.fork()
        if child == 0:
            answers.close()
            become(request)
        status, timed_out = wait_for(child, began + request["timeout"])
        seconds = time.monotonic() - began
        answers.write(json.dumps({"status": status, "seconds": seconds, "timed_out": timed_out}) + "\n")
        answers.flush()


def wait_for(child: int, deadline: float) -> tuple[int, bool]:
    """Exit status of `child` (minus the signal number when one ended it), killing it at `deadline`."""
    timed_out = False
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status), timed_out
        if time.monotonic() > deadline and not timed_out:
            timed_out = True
            os.kill(child, signal.SIGKILL)
        time.sleep(0.002)


def become(request: dict[str, Any]) -> NoReturn:
    """Turn this forked child into `python script args`; never returns."""
    for number, (path, flags) in enumerate(
        [
            (os.devnull, os.O_RDONLY),
            (request["stdout"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
            (request["stderr"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        ]
    ):
        os.dup2(os.open(path, flags), number)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - the old one holds requests read ahead
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    script = request["script"]
    sys.argv[:] = [script, *request["args"]]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    if "AMPSCOPE_SESSION" in os.environ:
        from ampscope.hooks.install import install_from_environment

        install_from_environment()
    leave(execute(script))


def leave(status: int) -> NoReturn:
    """End as the interpreter does, but for the tearing down of modules: 0.8 s with torch loaded."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status)


def execute(script: str) -> int:
    """Run the file as `__main__`; returns the exit status, having printed a traceback without our frames."""
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=script, __builtins__=__builtins__, __cached__=None)
    sys.modules["__main__"] = main
    try:
        exec(compile(Path(script).read_bytes(), script, "exec"), main.__dict__)
    except SystemExit as leaving:
        if leaving.code is None or isinstance(leaving.code, int):
            return (leaving.code or 0) & 0xFF
        print(leaving.code, file=sys.stderr)
        return 1
    except BaseException as error:
        trace = error.__traceback__
        own = trace.tb_next if trace is not None else None
        error.__traceback__ = own
        with contextlib.suppress(AttributeError):
            sys.last_value = error
        sys.excepthook(type(error), error, own)
        return 1
    return 0


if __name__ == "__main__":
    serve()
