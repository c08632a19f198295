"""The GPT example prints the same bytes twice, at every precision, and learns."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.forkserver import ForkServer

SCRIPT = Path(__file__).parents[2] / "examples" / "char_gpt.py"
SMALL = ["--layers", "1", "--width", "32", "--batch", "8", "--context", "32", "--characters", "20000"]


def losses(text: str) -> list[float]:
    found = re.findall(r"^step (\d+) loss (\d+\.\d{6})$", text, re.MULTILINE)
    assert [int(step) for step, _ in found] == list(range(len(found)))
    assert len(found) == len(text.splitlines())
    return [float(loss) for _, loss in found]


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
def test_runs_at_every_precision(dtype: str, fork_server: ForkServer) -> None:
    args = [*SMALL, "--steps", "12", "--dtype", dtype, "--device", "cpu"]
    first = fork_server.run(SCRIPT, args)
    second = fork_server.run(SCRIPT, args)

    assert (first.status, first.stderr) == (0, "")
    assert first.stdout == second.stdout
    series = losses(first.stdout)
    assert len(series) == 12
    assert series[-1] < series[0] - 0.2


def test_the_seed_decides_the_losses(fork_server: ForkServer) -> None:
    args = [*SMALL, "--steps", "2", "--dtype", "fp32"]

    assert fork_server.run(SCRIPT, [*args, "--seed", "1"]).stdout != fork_server.run(SCRIPT, args).stdout
