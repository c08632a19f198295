"""Scripts that train and are recorded: they end as under plain python, and the trace is kept."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.fidelity.conftest import Bench

ENDS = {
    "status": "import sys; sys.exit(3)",
    "exception": "def f(model):\n    raise ValueError(5)\nf(model)",
    "interrupt": "import os, time; os.kill(os.getpid(), 2); time.sleep(5)",
    "thread, then message": """
        import sys, threading
        def f():
            raise ValueError("in a thread")
        thread = threading.Thread(target=f, name="T")
        thread.start()
        thread.join()
        sys.exit("gone wrong")
        """,
    "hook of its own": """
        import sys
        before = sys.excepthook
        def mine(*info):
            print("mine", info[0])
            before(*info)
        sys.excepthook = mine
        1 / 0
        """,
}


@pytest.mark.parametrize("name", ENDS)
def test_end(bench: Bench, name: str) -> None:
    bench.same_after_training(ENDS[name], steps=3)


SUDDEN = {
    "abrupt": "import os; print('kept', flush=True); os._exit(0)",
    "SIGTERM": "import os; os.kill(os.getpid(), 15)",
}


@pytest.mark.parametrize("name", SUDDEN)
def test_sudden_end_within_the_first_flush_interval(bench: Bench, name: str) -> None:
    """Nobody promises the rows of the last seconds; the trace opens and is whole."""
    bench.same_after_training(SUDDEN[name], steps=None)
    assert bench.steps() in (0, 3)


@pytest.mark.slow
def test_sigkill_keeps_what_was_flushed(bench: Bench) -> None:
    """The writer flushes every few seconds; here the run lives long enough for one flush."""
    after = "import os, time; time.sleep(7); print('x', flush=True); os.kill(os.getpid(), 9)"
    seen = bench.same_after_training(after)
    assert seen.status == -signal.SIGKILL
    assert bench.outcome_on_disk() == (None, signal.SIGKILL)


LATE = """
import atexit, pickle, threading, time
class Mine:
    x = 5
def dump(where):
    print(where, pickle.loads(pickle.dumps(Mine())).x, Mine.__module__, flush=True)
def later():
    threading.main_thread().join()
    dump("thread")
atexit.register(dump, "atexit")
threading.Thread(target=later).start()
"""


def test_main_is_there_until_the_very_end(bench: Bench) -> None:
    bench.same_after_training(LATE)


PACKAGE = """
import logging, os, sys, warnings
from importlib.machinery import PathFinder
from .near import value
logging.basicConfig(stream=sys.stdout)
logging.captureWarnings(True)
os.chdir("/")
sys.meta_path[:] = [f for f in sys.meta_path if f is not PathFinder]
class Own:
    def find_spec(self, name, path=None, target=None):
        return PathFinder.find_spec(name, path, target)
sys.meta_path.insert(0, Own())
from loop import train
model, loss = train()
import importlib, torch
print(value, __spec__.name, loss, sys.argv, sys.path, sys.theirs)
try:
    print(importlib.reload(torch) is torch)
except Exception as error:
    print(type(error), error)
warnings.warn("old")
print(train()[1], type(torch.__spec__), type(torch.__loader__), torch.__file__)
"""


@pytest.mark.slow
def test_a_package_that_bends_the_import_system(bench: Bench) -> None:
    """-m with relative imports, late import after chdir, own sitecustomize, changed meta_path, reloaded torch,
    captured warnings."""
    bench.write("site/sitecustomize.py", "import sys; sys.theirs = 5")
    bench.write("pkg/__init__.py", "")
    bench.write("pkg/near.py", "value = 7")
    bench.write("pkg/tool.py", PACKAGE)
    path = os.pathsep.join([str(bench.folder / "site"), str(bench.folder)])
    bench.same(["-m", "pkg.tool", "--help"], env={"PYTHONPATH": path}, steps=6)


def test_a_script_that_trains_and_then_becomes_another(bench: Bench) -> None:
    bench.write("two.py", "import sys; print(sys.argv); sys.exit(4)")
    after = "import os, sys; print(1, flush=True); os.execv(sys.executable, ['python', 'two.py', 'x'])"
    bench.write("script.py", f"from loop import train\ntrain()\n{after}")
    reference = bench.plain(["script.py"], env={"NO_TRAINING": "1"})
    assert bench.same(["script.py"], reference=reference).status == 4


FORKS = """
import multiprocessing as mp, os, sys, time
def work(x):
    return x * 2
def learn(queue):
    from loop import train
    queue.put(train(steps=2)[1])
if __name__ == "__main__":
    from loop import train
    train()
    context = mp.get_context("fork")
    with context.Pool(2) as pool:
        print(pool.map(work, range(4)))
    pool = context.Pool(2)
    pool.apply_async(time.sleep, (60,))
    pool.terminate()
    pool.join()
    queue = context.Queue()
    process = context.Process(target=learn, args=(queue,))
    process.start()
    print(queue.get(timeout=60))
    process.join()
    print(process.exitcode)
    sys.stdout.flush()
    if os.fork() == 0:
        os._exit(0)
    print(os.wait()[1])
"""


@pytest.mark.slow
def test_forked_pools_and_a_forked_trainer(bench: Bench) -> None:
    bench.write("script.py", FORKS)
    bench.same(["script.py"], steps=5)


WORKERS = """
import torch
from torch.utils.data import DataLoader, Dataset
class Numbers(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, i):
        return torch.tensor([float(i)]), torch.initial_seed() % 1000
def learn(rank, out):
    from loop import train
    out[rank] = train(steps=2, seed=rank)[1]
if __name__ == "__main__":
    torch.manual_seed(0)
    from loop import train
    train()
    for method in ("fork", "spawn"):
        loader = DataLoader(Numbers(), batch_size=2, num_workers=2, persistent_workers=True,
                            multiprocessing_context=method)
        for _ in range(2):
            print(method, [(x.flatten().tolist(), s.tolist()) for x, s in loader])
    out = torch.zeros(2, dtype=torch.float64).share_memory_()
    torch.multiprocessing.spawn(learn, args=(out,), nprocs=2)
    print(out.tolist())
"""


@pytest.mark.slow
def test_data_loader_workers_and_spawned_trainers(bench: Bench) -> None:
    bench.write("script.py", WORKERS)
    bench.same(["script.py"], steps=7)


def test_a_trainer_from_stdin_in_a_read_only_folder(bench: Bench) -> None:
    bench.folder.joinpath("run").mkdir()
    locked = bench.write("locked/near.py", "value = 1").parent
    locked.chmod(0o555)
    code = "from loop import train; import os; os.chdir('locked'); print(train()[1] > 0)"
    reference = bench.plain(["-c", "print(True)"])
    try:
        bench.same(["-"], stdin=code, steps=3, reference=reference)
    finally:
        locked.chmod(0o755)


def wait_for(path: Path, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < end, f"{path.name} did not appear"
        time.sleep(0.05)


@pytest.mark.slow
def test_no_orphan_and_a_readable_trace_after_sigkill_of_the_parent(bench: Bench) -> None:
    bench.write(
        "script.py",
        """
        import os, pathlib, time
        from loop import train
        train()
        time.sleep(7)
        pathlib.Path("pid").write_text(str(os.getpid()))
        time.sleep(60)
        """,
    )
    with subprocess.Popen(bench.command(["script.py"], "-q"), cwd=bench.folder, env=bench.env()) as parent:
        wait_for(bench.folder / "pid")
        child = int((bench.folder / "pid").read_text() or (bench.folder / "pid").read_text())
        parent.kill()
        parent.wait()
        for _ in range(200):
            if not os.path.isdir(f"/proc/{child}"):
                break
            time.sleep(0.05)
        assert not os.path.isdir(f"/proc/{child}")
    assert bench.steps() == 3
    assert not (bench.run_dir / "COMPLETE").exists()


def test_ctrl_c_at_a_terminal_while_training(bench: Bench) -> None:
    bench.write(
        "script.py",
        """
        import time
        from loop import train
        train()
        try:
            print("ready", flush=True)
            for _ in range(600):
                time.sleep(0.05)
        except KeyboardInterrupt:
            print("caught")
        raise KeyboardInterrupt
        """,
    )
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(bench.folder)
        os.execve(sys.executable, bench.command(["script.py"]), bench.env())
    output = b""
    typed = False
    while True:
        try:
            output += os.read(terminal, 4096)
        except OSError:
            break
        if b"ready" in output and not typed:
            typed = True
            os.write(terminal, b"\x03")
    os.close(terminal)
    status = os.waitpid(pid, 0)[1]
    assert os.WTERMSIG(status) == signal.SIGINT, output
    assert output.count(b"caught") == 1
    assert b"KeyboardInterrupt" in output
    assert b"next: ampscope view" in output
    assert bench.steps() == 3


def test_the_closing_block(bench: Bench) -> None:
    bench.write(
        "script.py",
        """
        import sys
        from loop import train
        train()
        print(sorted({"pandas", "duckdb", "dash", "plotly", "rich"} & set(sys.modules)))
        """,
    )
    seen = bench.recorded(["script.py"])
    lines = seen.stderr.splitlines()
    assert (seen.status, seen.stdout) == (0, "[]\n")
    assert all(line.startswith("[ampscope] ") for line in lines)
    assert len(lines) <= 5
    assert f"recorded 3 steps in {bench.run_dir}" in seen.stderr
    assert lines[-1] == f"[ampscope] next: ampscope view {bench.run_dir}"


@pytest.mark.slow
def test_levels_do_not_change_the_loss(bench: Bench) -> None:
    bench.write("script.py", "from loop import train; print(train(steps=6)[1])")
    plain = bench.plain(["script.py"])
    for options in (("--level", "pulse"), ("--every", "1", "--watch", "--exact")):
        assert bench.recorded(["script.py"], "-q", *options) == plain
        assert bench.steps() == 6
