"""Fixtures of the report tests: the hand-made run, opened, and its report."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ampscope.report.collect import collect
from ampscope.report.model import Report
from ampscope.trace.reader import Trace, open_trace
from tests.report.handmade import GENERATOR, NAMES, make_diagnosis, make_run


@pytest.fixture(scope="session")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the hand-made run."""
    run = tmp_path_factory.mktemp("runs") / "train-1"
    make_run(run)
    return run


@pytest.fixture(scope="session")
def trace(run_dir: Path) -> Iterator[Trace]:
    with open_trace(run_dir) as opened:
        yield opened


@pytest.fixture(scope="session")
def report(trace: Trace) -> Report:
    """The report of the hand-made run, not redacted."""
    return collect(trace, make_diagnosis(), NAMES, GENERATOR)
