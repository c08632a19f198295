from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

from ampscope.hooks.settings import ENV_VAR
from ampscope.trace.reader import open_trace
from tests.support.recording import rows

ROOT = Path(__file__).parents[2]


def run(tmp_path: Path, script: str) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(script))
    command = [sys.executable, "-m", "ampscope", "run", "-q", "-o", str(tmp_path / "run"), str(path)]
    return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120)


def test_a_crash_before_any_backward_leaves_a_trace_when_amp_was_used(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        """
        import torch
        model = torch.nn.Linear(4, 2)
        with torch.autocast("cpu", dtype=torch.float16):
            out = model(torch.randn(3, 4))
        torch.nn.Linear(2, 2)(out)
        """,
    )
    assert done.returncode == 1
    trace = open_trace(tmp_path / "run")
    event = rows(trace, "SELECT subject, line FROM events WHERE event='exception'")
    assert event == [{"subject": "RuntimeError", "line": 6}]


def test_children_record_when_they_train_and_only_then(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        """
        import torch, multiprocessing as mp
        from torch.utils.data import DataLoader, TensorDataset

        def train(steps):
            model = torch.nn.Linear(4, 2)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            data = DataLoader(TensorDataset(torch.randn(steps, 4)), num_workers=1)
            for (x,) in data:
                optimizer.zero_grad()
                model(x).sum().backward()
                optimizer.step()

        if __name__ == "__main__":
            child = mp.get_context("fork").Process(target=train, args=(3,))
            child.start()
            child.join()
            train(2)
            print("exit", child.exitcode)
        """,
    )
    assert done.stdout == "exit 0\n"
    trace = open_trace(tmp_path / "run")
    counts = {r["proc"]: r["n"] for r in rows(trace, "SELECT proc, count(*) AS n FROM steps GROUP BY 1")}
    assert sorted(counts.values()) == [2, 3]


def test_nothing_happens_without_the_environment(tmp_path: Path) -> None:
    script = "import torch, ampscope.hooks.install as i; i.install_from_environment(); print(i.current())"
    env = {k: v for k, v in os.environ.items() if k != ENV_VAR}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=env, check=True)
    assert done.stdout.strip() == "None"


def test_settings_travel_through_the_environment(tmp_path: Path) -> None:
    script = (
        "import torch, ampscope.hooks.install as i; i.install_from_environment(); i.install_from_environment()\n"
        "s = i.current().settings; print(s.level, s.every, s.steps)"
    )
    env = dict(os.environ)
    env[ENV_VAR] = json.dumps({"run_dir": str(tmp_path), "level": "range", "every": 7, "steps": [1, None]})
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=env, check=True)
    assert done.stdout.strip() == "range 7 (1, None)"


def test_what_a_late_crash_leaves_is_all_there(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        """
        import time, torch
        model = torch.nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        for step in range(20):
            optimizer.zero_grad()
            scaler.scale(model(torch.randn(3, 4)).sum()).backward()
            scaler.unscale_(optimizer)
            if step == 12:
                time.sleep(1.5)  # the first flush has been
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
        """,
    )
    assert done.returncode == 1
    trace = open_trace(tmp_path / "run")
    assert rows(trace, "SELECT max(step) AS last FROM steps") == [{"last": 12}]
    assert rows(trace, "SELECT outcome FROM steps WHERE step=12") == [{"outcome": "cut_off"}]
    failed = rows(trace, "SELECT call, error FROM calls WHERE error IS NOT NULL")
    assert failed == [{"call": "scaler.unscale_", "error": "RuntimeError"}]
    assert rows(trace, "SELECT subject FROM events WHERE event='exception'") == [{"subject": "RuntimeError"}]
