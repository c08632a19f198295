"""Training loops of accelerate, recorded: the run is what it was, its steps are counted right, its faults are named."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ampscope.diagnose.engine import diagnose
from ampscope.trace.reader import open_trace
from tests.support.recording import rows

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(importlib.util.find_spec("accelerate") is None, reason="accelerate is not installed"),
]

SCRIPT = str(Path(__file__).with_name("accelerate_script.py"))
STEPS = 32
"""64 batches, two to an optimizer step."""


def run(folder: Path, command: Sequence[str]) -> str:
    """What the command prints on stdout."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HOME": str(folder), "ACCELERATE_USE_CPU": "true"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def record(folder: Path, command: Sequence[str]) -> str:
    ampscope = [sys.executable, "-m", "ampscope", "run", "-q", "--strict", "-o", str(folder / "run")]
    return run(folder, [*ampscope, *command])


def steps_of(trace: Any) -> list[dict[str, Any]]:
    return rows(trace, "SELECT outcome, n_backward, autocast_dtype FROM steps ORDER BY step")


@pytest.mark.parametrize(
    ("words", "autocast", "scaled"),
    [
        (["fp16"], None, False),  # on a CPU accelerate takes fp16 for float32
        (["bf16"], "bfloat16", False),
        (["fp16", "gpu"], "float16", True),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_a_healthy_loop(tmp_path: Path, words: list[str], autocast: str | None, scaled: bool) -> None:
    assert record(tmp_path, [SCRIPT, *words]) == run(tmp_path, [sys.executable, SCRIPT, *words])
    with open_trace(tmp_path / "run") as trace:
        steps = steps_of(trace)
        calls = rows(trace, "SELECT call, count(*) AS n FROM calls GROUP BY call")
        found = diagnose(trace)
    assert steps == [{"outcome": "stepped", "n_backward": 2, "autocast_dtype": autocast}] * STEPS
    counted = {row["call"]: row["n"] for row in calls}
    assert (counted["backward"], counted["optimizer.step"]) == (2 * STEPS, STEPS)
    assert counted.get("scaler.unscale_", 0) == counted.get("scaler.update", 0) == (STEPS if scaled else 0)
    assert [f.code for f in found.findings if f.severity != "info"] == []
    assert found.verdict.startswith(f"No fault found in {STEPS} optimizer steps")


def test_a_clip_that_goes_past_accelerate_sees_scaled_gradients(tmp_path: Path) -> None:
    record(tmp_path, [SCRIPT, "fp16", "gpu", "clip"])
    with open_trace(tmp_path / "run") as trace:
        found = [f for f in diagnose(trace).findings if f.severity != "info"]
    assert [f.code for f in found] == ["AMP101"]
    line = Path(SCRIPT).read_text().splitlines()[(found[0].where.line or 0) - 1]
    assert line.strip() == "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"


def test_weights_stored_in_half_lose_their_updates(tmp_path: Path) -> None:
    record(tmp_path, [SCRIPT, "bf16", "half"])
    with open_trace(tmp_path / "run") as trace:
        found = [f for f in diagnose(trace).findings if f.severity != "info"]
    assert [f.code for f in found] == ["AMP501"]


def test_the_launcher_leaves_no_trace_and_its_child_does(tmp_path: Path) -> None:
    launch = [
        sys.executable,
        "-m",
        "accelerate.commands.accelerate_cli",
        "launch",
        "--cpu",
        "--num_processes",
        "1",
    ]
    record(tmp_path, [*launch, SCRIPT, "bf16"])
    with open_trace(tmp_path / "run") as trace:
        assert len(trace.info.processes) == 1
        assert [step["outcome"] for step in steps_of(trace)] == ["stepped"] * STEPS
