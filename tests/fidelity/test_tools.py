"""What a script's own instruments say of its training is the same when it is recorded. One process each way."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.fidelity.conftest import Bench, Outcome

SECTIONS = (
    "flop counter", "dispatch mode", "function mode", "profiler", "anomaly mode", "selective checkpointing",
    "global module hooks", "tensor hooks", "patched scaler", "scaler subclass", "pickle", "deepcopy", "script",
    "trace", "tracebacks", "fx", "dynamo", "functorch", "signatures", "warnings", "random state", "threads",
    "default dtype", "default device", "fake tensors", "deterministic", "saved tensors", "tensorboard", "gradients",
    "signals",
)  # fmt: skip


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> dict[str, Outcome]:
    bench: Bench = request.getfixturevalue("make_bench")(tmp_path_factory.mktemp("tools"))
    bench.write("script.py", Path(__file__).with_name("tools_script.py").read_text())
    return {
        "plain": bench.plain(["script.py"]),
        "recorded": bench.recorded(["script.py"], "-q", "--every", "1"),
    }


def section(text: str, name: str) -> str:
    return text.partition(f"=== {name}\n")[2].partition("\n=== ")[0]


def test_both_end_well(outcomes: dict[str, Outcome]) -> None:
    assert outcomes["plain"].status == outcomes["recorded"].status == 0
    assert outcomes["plain"].stderr == outcomes["recorded"].stderr


@pytest.mark.parametrize("name", SECTIONS)
def test_same(outcomes: dict[str, Outcome], name: str) -> None:
    plain = section(outcomes["plain"].stdout, name)
    assert plain
    assert not re.match(r"\w+Error: ", plain)
    assert section(outcomes["recorded"].stdout, name) == plain
