"""The CNN example prints the same bytes twice and recognises digits."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.forkserver import ForkServer

SCRIPT = Path(__file__).parents[2] / "examples" / "digits_cnn.py"


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
def test_learns_to_read_digits(dtype: str, fork_server: ForkServer) -> None:
    args = ["--steps", "40", "--dtype", dtype, "--device", "cpu"]
    first = fork_server.run(SCRIPT, args)
    second = fork_server.run(SCRIPT, args)

    assert (first.status, first.stderr) == (0, "")
    assert first.stdout == second.stdout
    *steps, last = first.stdout.splitlines()
    assert [re.sub(r"loss \d+\.\d{6}$", "", line) for line in steps] == [f"step {n} " for n in range(40)]
    accuracy = re.fullmatch(r"held-out accuracy (\d\.\d{4})", last)
    assert accuracy is not None
    assert float(accuracy[1]) > 0.8
