"""Recording changes no bit of what a training loop leaves behind: weights, buffers, gradients, optimizer and
scaler state, losses and the random streams of torch, NumPy and Python. Each run is a process of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ampscope.trace.reader import open_trace
from tests.bitexact.registry import COMPILED, LOOPS
from tests.support.forkserver import ForkServer

RUN_LOOP = Path(__file__).with_name("run_loop.py")
EAGER = [name for name in LOOPS if name not in COMPILED]
LEVELS = {
    "fp16": ["rest", "count", "pulse", "range", "census", "watch"],
    "bf16": ["rest", "census"],
    "fp32": ["census"],
}
"""Every level where a scaler takes part too; elsewhere the one that holds all collectors."""
WRITES = {
    "rest": {"steps"},
    "count": {"steps"},
    "pulse": {"steps", "calls"},
    "range": {"steps", "calls", "tensors", "modules"},
    "census": {"steps", "calls", "tensors", "modules", "ops"},
    "watch": {"steps", "calls", "tensors", "modules", "ops"},
}
"""Tables that a level fills."""

Leave = Callable[..., dict[str, str]]


@pytest.fixture
def left_by(fork_server: ForkServer, tmp_path: Path) -> Leave:
    """Digests of what loop NAME at PRECISION leaves behind, recorded at LEVEL or plain ("")."""

    def run(name: str, precision: str, level: str = "", cache: Path | None = None) -> dict[str, str]:
        out, run_dir = tmp_path / f"{level}.json", tmp_path / f"run-{level}"
        args = [name, precision, str(out), *([level, str(run_dir)] if level else [])]
        env = {"TORCHINDUCTOR_CACHE_DIR": str(cache), "TORCHINDUCTOR_COMPILE_THREADS": "1"} if cache else {}
        outcome = fork_server.run(RUN_LOOP, args, env=env)
        assert outcome.status == 0, outcome.stderr
        if level:
            tables = {path.parent.parent.name for path in run_dir.rglob("*.parquet")}
            # Modules that were compiled in place run no hook: there is nothing to say of them.
            expected = WRITES[level] - ({"modules"} if cache else set())
            assert tables >= expected, "the level did not record what it stands for"
        return dict(json.loads(out.read_text()))

    return run


def assert_same(recorded: dict[str, str], plain: dict[str, str]) -> None:
    different = {key: (plain.get(key), recorded.get(key)) for key in {*plain, *recorded}}
    different = {key: pair for key, pair in different.items() if pair[0] != pair[1]}
    assert not different


@pytest.mark.parametrize("precision", LEVELS)
@pytest.mark.parametrize("name", EAGER)
def test_recording_changes_no_bit(name: str, precision: str, left_by: Leave) -> None:
    plain = left_by(name, precision)

    for level in LEVELS[precision]:
        assert_same(left_by(name, precision, level), plain)


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("level", ["count", "rest"])
def test_the_zoo_is_counted_and_rests(precision: str, level: str, left_by: Leave, tmp_path: Path) -> None:
    left_by("sgd_mlp", precision, level)
    with open_trace(tmp_path / f"run-{level}") as trace:
        found = trace.sql("SELECT level, n_backward IS NULL AS rested, outcome FROM steps ORDER BY segment")
    found = found[found["outcome"] == "stepped"].iloc[3:]
    assert set(found["level"]) == {"count"}
    assert found["rested"].any() == (level == "rest")


@pytest.mark.compile
@pytest.mark.parametrize("name", COMPILED)
def test_compiled_code_stays_the_same(
    name: str, left_by: Leave, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cache = tmp_path_factory.getbasetemp() / "inductor"
    plain = left_by(name, "bf16", cache=cache)

    assert_same(left_by(name, "bf16", "census", cache=cache), plain)


@pytest.mark.compile
def test_code_compiled_under_the_recorder_is_the_same(left_by: Leave, tmp_path: Path) -> None:
    name = "compiled_method_and_loss"
    recorded = left_by(name, "bf16", "census", cache=tmp_path / "cold")

    assert_same(recorded, left_by(name, "bf16", cache=tmp_path / "cold"))


def test_the_comparison_sees_one_changed_bit(left_by: Leave) -> None:
    plain = left_by("sgd_mlp", "fp32")
    other = left_by("foreach_adamw", "fp32")

    with pytest.raises(AssertionError):
        assert_same(other, plain)


def test_the_digest_of_a_tensor_shows_its_last_bit() -> None:
    import torch

    from tests.bitexact.snapshot import digest

    x = torch.ones(5)
    y = x.clone()
    y[3] = torch.nextafter(y[3], torch.tensor(2.0))

    assert digest(x) == digest(x.clone())
    assert digest(x) != digest(y)
    assert digest(torch.zeros(1)) != digest(-torch.zeros(1))
    assert digest(x) != digest(x.half())


def test_the_zoo_is_as_wide_as_promised() -> None:
    assert len(EAGER) >= 24
    assert len(COMPILED) == 4
