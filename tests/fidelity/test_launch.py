"""Scripts that never train: under `ampscope run` they end, print and fail to the byte as under plain python."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.fidelity.conftest import Bench

IDENTITY = """
import os, sys
import __main__
print(__name__, __file__ if "__file__" in globals() else None, __spec__ and __spec__.name, __package__)
print(sys.argv, sys.orig_argv[1:] if "-c" not in sys.argv else "", sys.path, sys.flags, __main__.__dict__.keys())
print(sorted(sys.modules), [str(f) for f in sys.meta_path if isinstance(f, type)], sys.stdin.read())
print(os.getcwd(), os.getpgrp() == os.getppid(), sorted(set(os.environ) - {"PYTHONPATH", "AMPSCOPE_SESSION"}))
"""


def test_identity_of_a_script(bench: Bench) -> None:
    bench.write("sub/script.py", IDENTITY)
    seen = bench.same(["sub/script.py", "--help", "-q", "--", "", "ü", "a b", "*", "--strict"], stdin="given")
    assert "given" in seen.stdout


def test_identity_of_a_module(bench: Bench) -> None:
    bench.write("pkg/__init__.py", "")
    bench.write("pkg/near.py", "value = 7")
    bench.write("pkg/tool.py", f"from .near import value\nfrom . import near\nprint(value)\n{IDENTITY}")
    bench.write("pkg/__main__.py", IDENTITY)
    bench.same(["-m", "pkg.tool", "--lr", "1"])
    bench.same(["-m", "pkg", "-m"])
    bench.same(["pkg"])


def test_identity_of_code_and_stdin(bench: Bench) -> None:
    code = "import sys; print(sys.argv, sys.path, __name__)"
    bench.same(["-c", code, "-c", "-q"])
    bench.same(["-", "x"], stdin=code)
    bench.same(["-c", "raise SystemExit('no')"])


def test_own_help_of_the_script(bench: Bench) -> None:
    bench.write(
        "script.py",
        """
        import argparse
        parser = argparse.ArgumentParser(description="theirs")
        parser.add_argument("--every", type=int)
        parser.parse_args()
        """,
    )
    assert "theirs" in bench.same(["script.py", "--help"]).stdout
    assert bench.same(["script.py", "--every", "x"]).status == 2


ENDS = {
    "status": "import sys; sys.exit(3)",
    "message": "import sys; sys.exit('gone wrong')",
    "large status": "import sys; sys.exit(2**31 + 5)",
    "abrupt": "import os; print('kept', flush=True); print('lost', end=''); os._exit(0)",
    "syntax error": "def broken(:\n    pass",
    "exception": "def f():\n    raise ValueError('é')\nf()",
    "chained": "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise KeyError('x') from e",
    "import error": "import no_such_module_here",
    "group": "raise ExceptionGroup('both', [ValueError(1), TypeError(2)])",
    "thread": "import threading\ndef f():\n    raise ValueError\nt = threading.Thread(target=f, name='T')\n"
    "t.start(); t.join(); print('after')",
    "excepthook": "import sys\nsys.excepthook = lambda *a: print('mine', a[0], file=sys.stderr)\n1 / 0",
    "atexit": "import atexit\ndef f(x):\n    raise x\natexit.register(print, 'late')\nimport sys\nsys.exit(1)",
    "SIGTERM": "import os; print('x', flush=True); os.kill(os.getpid(), 15)",
    "SIGKILL": "import os; print('x', flush=True); os.kill(os.getpid(), 9)",
    "abort": "import os; os.abort()",
    "interrupt": "import os, time; os.kill(os.getpid(), 2); time.sleep(5)",
    "interrupt caught": "import os, time\ntry:\n    os.kill(os.getpid(), 2); time.sleep(5)\n"
    "except KeyboardInterrupt:\n    print('caught')",
    "broken pipe": "import os, signal\nsignal.signal(signal.SIGPIPE, signal.SIG_DFL); r, w = os.pipe(); os.close(r)\n"
    "os.write(w, b'x')",
}


@pytest.mark.parametrize("name", ENDS)
def test_end(bench: Bench, name: str) -> None:
    if "ExceptionGroup" in ENDS[name] and sys.version_info < (3, 11):
        pytest.skip("Python 3.11 has exception groups")
    bench.write("script.py", ENDS[name])
    seen = bench.same(["script.py"])
    status, number = bench.outcome_on_disk()
    assert seen.status == (status if number is None else -number)


def test_warnings_go_where_the_script_sends_them(bench: Bench) -> None:
    bench.write(
        "script.py",
        """
        import logging, sys, warnings
        logging.basicConfig(stream=sys.stdout, level=0)
        logging.captureWarnings(True)
        warnings.warn("old")
        logging.debug("all of it")
        """,
    )
    bench.same(["script.py"])


def test_an_environment_with_its_own_sitecustomize(bench: Bench) -> None:
    bench.write("site/sitecustomize.py", "import sys; sys.theirs = __file__")
    bench.write("script.py", "import sys, sitecustomize; print(sys.theirs, sitecustomize.__file__, sys.path)")
    bench.same(["script.py"], env={"PYTHONPATH": str(bench.folder / "site")})


def test_a_script_in_a_read_only_folder(bench: Bench) -> None:
    script = bench.write("locked/script.py", "import near; print(near.value)")
    bench.write("locked/near.py", "value = 1")
    script.parent.chmod(0o555)
    try:
        bench.same([str(script)])
        assert os.geteuid() == 0 or not (script.parent / "__pycache__").exists()
    finally:
        script.parent.chmod(0o755)


def test_a_script_that_replaces_itself(bench: Bench) -> None:
    bench.write(
        "script.py", "import os, sys; print(1, flush=True); os.execv(sys.executable, ['p', 'two.py', 'x'])"
    )
    bench.write("two.py", "import sys; print(sys.argv, sys.path); sys.exit(4)")
    assert bench.same(["script.py"]).status == 4


POOLS = """
import multiprocessing as mp, time
class Point:
    def __init__(self, x): self.x = x
def work(x):
    import sys
    return Point((x.x * 2, "sitecustomize" in sys.modules, sys.path))
if __name__ == "__main__":
    for method in mp.get_all_start_methods():
        context = mp.get_context(method)
        with context.Pool(2) as pool:
            print(method, [p.x for p in pool.map(work, map(Point, range(4)))])
        process = context.Process(target=exit, args=(5,))
        process.start(); process.join(); print(process.exitcode)
        process = context.Process(target=time.sleep, args=(60,))
        process.start(); process.terminate(); process.join()
        print(process.exitcode)
"""


def test_pools_of_every_start_method(bench: Bench) -> None:
    bench.write("script.py", POOLS)
    assert "(6, False" in bench.same(["script.py"]).stdout


def test_any_command(bench: Bench) -> None:
    bench.write("go.sh", 'echo "$@"; exit 9\n')
    done = subprocess.run(
        ["sh", "go.sh", "a b"], cwd=bench.folder, capture_output=True, text=True, check=False
    )
    seen = bench.recorded(["sh", "go.sh", "a b"], "-q")
    assert (seen.status, seen.stdout, seen.stderr) == (done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("flags", ["-I", "-E", "-S", "-uI"])
def test_a_python_that_shuts_us_out_is_named(bench: Bench, flags: str) -> None:
    bench.write("script.py", "print('hello')")
    seen = bench.recorded([sys.executable, flags, "script.py"])
    assert (seen.status, seen.stdout) == (0, "hello\n")
    assert f"nothing was recorded: python {flags}" in seen.stderr


def test_nothing_recorded_says_what_to_do(bench: Bench) -> None:
    bench.write("script.py", "print('hello')")
    seen = bench.recorded(["script.py"])
    assert all(line.startswith("[ampscope] ") for line in seen.stderr.splitlines())
    assert "nothing was recorded" in seen.stderr
    assert "next: ampscope doctor" in seen.stderr.splitlines()[-1]


OTHERS = [
    p for v in ("2.7", "3", "3.6", "3.7", "3.8", "3.9", "3.12", "3.13") if (p := shutil.which(f"python{v}"))
]


@pytest.mark.parametrize("python", [*OTHERS, "bare"])
def test_a_foreign_interpreter_without_torch(bench: Bench, python: str) -> None:
    if python == "bare":
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", "bare"], cwd=bench.folder, check=True)
        python = str(bench.folder / "bare" / "bin" / "python")
    bench.write("script.py", "import sys, json; print(sorted(sys.modules)); print(sys.path); sys.exit(3)")
    done = subprocess.run(
        [python, "script.py"], cwd=bench.folder, env=bench.env(), capture_output=True, text=True, check=False
    )
    seen = bench.recorded([python, "script.py"], "-q")
    assert (seen.status, seen.stdout, seen.stderr) == (done.returncode, done.stdout, done.stderr)


def test_a_foreign_interpreter_with_torch_but_without_our_libraries(bench: Bench) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "bare"], cwd=bench.folder, check=True)
    python = str(bench.folder / "bare" / "bin" / "python")
    bench.write("torch/__init__.py", "import torch.part")
    bench.write("torch/part.py", "")
    bench.write("script.py", "import torch; print('went on')")
    seen = bench.recorded([python, "script.py"])
    assert (seen.status, seen.stdout) == (0, "went on\n")
    lines = seen.stderr.splitlines()
    assert f"{python} imports torch but is not recorded: ImportError: pyarrow" in lines[1]
    assert lines[-1] == f"[ampscope] next: {python} -m pip install ampscope"


def test_usage_errors_start_nothing(bench: Bench) -> None:
    bench.write("script.py", "print('started')")
    for options, status in [
        (["--every", "0"], 2),
        (["--set", "a=b"], 2),
        (["--wat"], 2),
        (["--every", "1", "--budget", "3"], 2),
    ]:
        seen = bench.recorded(["script.py"], *options)
        assert (seen.status, seen.stdout) == (status, "")
        assert seen.stderr.startswith("[ampscope] error: ")
        assert seen.stderr.count("\n") == 1
    assert not bench.run_dir.exists()
    for words, status in [(["missing.py"], 2), (["no-such-command"], 127), (["./loop.py.txt"], 127), ([], 2)]:
        seen = bench.recorded(words)
        assert (seen.status, seen.stdout) == (status, "")


def test_an_occupied_directory_is_refused_without_force(bench: Bench) -> None:
    bench.write("script.py", "print('started')")
    bench.run_dir.mkdir()
    (bench.run_dir / "precious.txt").write_text("data")
    seen = bench.recorded(["script.py"])
    assert (seen.status, seen.stdout) == (2, "")
    assert "precious" in os.listdir(bench.run_dir)[0]
