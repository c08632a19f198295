"""Runs a script twice in real processes, by plain python and by `ampscope run`, for comparison."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

LOOP = """
import os


def train(steps=3, dtype="float16", seed=0):
    if os.environ.get("NO_TRAINING"):
        return None, 0.0
    import torch
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for _ in range(steps):
        with torch.autocast("cpu", getattr(torch, dtype)):
            loss = model(torch.randn(4, 8)).pow(2).mean()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return model, loss.item()
"""


@dataclass(frozen=True)
class Outcome:
    """What a user sees of a command, and a shell: `status` is negative for a signal."""

    status: int
    stdout: str
    stderr: str


@dataclass
class Bench:
    """A folder of scripts. `loop.py` is there: `from loop import train` trains a tiny model in fp16."""

    folder: Path

    @property
    def run_dir(self) -> Path:
        return self.folder / "run"

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    def env(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "AMPSCOPE", "COV"))}
        return {**kept, "OMP_NUM_THREADS": "1", "COLUMNS": "80", "KINETO_LOG_LEVEL": "99", **(extra or {})}

    def command(self, words: Sequence[str], *options: str) -> list[str]:
        """The argv of `ampscope run` for `words`, with this source tree's ampscope."""
        start = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from ampscope.commands import main; "
        own = ["run", "-f", "-o", str(self.run_dir), *options]
        return [sys.executable, "-c", f"{start}sys.exit(main({own!r} + sys.argv[1:]))", *words]

    def plain(
        self, words: Sequence[str], *, env: Mapping[str, str] | None = None, stdin: str = ""
    ) -> Outcome:
        return self._run([sys.executable, *words], env, stdin)

    def recorded(
        self, words: Sequence[str], *options: str, env: Mapping[str, str] | None = None, stdin: str = ""
    ) -> Outcome:
        return self._run(self.command(words, *options), env, stdin)

    def same(
        self,
        words: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        stdin: str = "",
        steps: int | None = None,
        reference: Outcome | None = None,
    ) -> Outcome:
        """Both ways end alike to the byte; with `steps`, that many rows of steps were kept.

        `words` as after `python`. `reference` saves the plain run where its outcome is known.
        """
        expected = reference or self.plain(words, env=env, stdin=stdin)
        seen = self.recorded(words, "-q", env=env, stdin=stdin)
        assert seen == expected
        if steps is not None:
            assert self.steps() == steps
        return seen

    def steps(self) -> int:
        """Rows of the steps table. The trace must open and be whole."""
        from ampscope.trace.reader import open_trace

        with open_trace(self.run_dir) as trace:
            assert trace.integrity.sound, trace.integrity.sentence
            return trace.rows("steps")

    def outcome_on_disk(self) -> tuple[int | None, int | None]:
        """(exit status, exit signal) as `run.json` has them."""
        record = json.loads((self.run_dir / "run.json").read_text())
        return record["exit_status"], record["exit_signal"]

    def same_after_training(self, after: str, *, steps: int | None = 3) -> Outcome:
        """`same` for a script that trains three steps and then does `after`. The plain run leaves the training
        out, and with it the two seconds of importing torch: what `after` does must not depend on it."""
        self.write("script.py", f"from loop import train\nmodel, loss = train()\n{textwrap.dedent(after)}")
        reference = self.plain(["script.py"], env={"NO_TRAINING": "1"})
        return self.same(["script.py"], steps=steps, reference=reference)

    def _run(self, argv: list[str], env: Mapping[str, str] | None, stdin: str) -> Outcome:
        done = subprocess.run(
            argv, env=self.env(env), input=stdin, cwd=self.folder, capture_output=True, text=True, check=False
        )
        return Outcome(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="session")
def make_bench() -> Callable[[Path], Bench]:
    def make(folder: Path) -> Bench:
        made = Bench(folder)
        made.write("loop.py", LOOP)
        return made

    return make


@pytest.fixture
def bench(tmp_path: Path, make_bench: Callable[[Path], Bench]) -> Bench:
    return make_bench(tmp_path)
