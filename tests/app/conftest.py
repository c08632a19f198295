"""Runs to look at, built once per worker: a recorded-like fp16 run, one that died in step 0, an empty one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ampscope.app.queries.source import Source
from ampscope.app.runs import OpenRun, RunStore
from ampscope.app.state import View
from tests.app.tracekit import RunKit


@pytest.fixture(scope="session")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 steps of a two-block transformer in fp16: two skips at the start, one at step 24."""
    return RunKit().build().write(tmp_path_factory.mktemp("runs") / "first")


@pytest.fixture(scope="session")
def other_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model in bfloat16 with gradients four times as large, and NaN losses from step 30 on."""
    kit = RunKit(grad_center=-12.0, half="bfloat16", nan_from=30).build()
    return kit.write(tmp_path_factory.mktemp("runs") / "second")


@pytest.fixture(scope="session")
def bare_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that recorded nothing at all and was cut off."""
    return RunKit().write(tmp_path_factory.mktemp("runs") / "bare", complete=False)


@pytest.fixture(scope="session")
def store(run_dir: Path, other_dir: Path, bare_dir: Path) -> RunStore:
    return RunStore([run_dir, other_dir, bare_dir])


@pytest.fixture(scope="session")
def run_dir_store(run_dir: Path) -> RunStore:
    """A dashboard over one run."""
    return RunStore([run_dir])


@pytest.fixture(scope="session")
def run(store: RunStore) -> Iterator[OpenRun]:
    found = store.get("first")
    yield found
    found.trace.close()


@pytest.fixture(scope="session")
def src(run: OpenRun) -> Source:
    return run.source(View())


@pytest.fixture(scope="session")
def other(store: RunStore) -> Source:
    return store.get("second").source(View())


@pytest.fixture(scope="session")
def bare(store: RunStore) -> Source:
    """The process of a run without a single row."""
    return store.get("bare").source(View())
