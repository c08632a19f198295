"""Fixtures for every test: what is costly to start is started once per worker."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.chromium import chromium
from tests.support.corpus_table import pytest_terminal_summary
from tests.support.forkserver import ForkServer

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["fork_server", "pytest_terminal_summary"]


def pytest_configure() -> None:
    """A shell that starts a job in the background has it ignore Ctrl-C, and so would every script that a test runs."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A headless Chromium."""
    with chromium() as found:
        yield found


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    """A process with torch imported that runs scripts in forks of itself."""
    with ForkServer() as server:
        yield server
