"""Fixtures for every test: what is costly to start is started once per worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.forkserver import ForkServer


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    """A process with torch imported that runs scripts in forks of itself."""
    with ForkServer() as server:
        yield server
