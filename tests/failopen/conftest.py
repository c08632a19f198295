"""Has orders carried out in forks and reads back what each left."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ampscope.trace.runinfo import create_run
from tests.support.forkserver import ForkServer

RUNNER = Path(__file__).with_name("runner.py")


@dataclass(frozen=True)
class Left:
    """What an order left behind. `raised`: how often its fault was met; `digests` is empty if it failed."""

    folder: Path
    status: int
    digests: dict[str, Any]
    stderr: str
    raised: int

    @property
    def lines(self) -> list[str]:
        return self.stderr.splitlines()


CarryOut = Callable[..., list[Left]]


@pytest.fixture(scope="session")
def carry_out(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> CarryOut:
    """`carry_out({"case": …, "fault": …}, …, recorded=True)`: one result per order, in order."""

    def run(*wanted: dict[str, Any], recorded: bool = True) -> list[Left]:
        base = tmp_path_factory.mktemp("orders")
        orders = []
        for index, fields in enumerate(wanted):
            folder = base / str(index)
            folder.mkdir()
            if fields.pop("recorded", recorded):
                create_run(folder / "run", ["script.py"], {})
            orders.append({"folder": str(folder), **fields})
        (base / "orders").write_text("\n".join(map(json.dumps, orders)))
        outcome = fork_server.run(RUNNER, [str(base / "orders")], timeout=90.0 * len(orders))
        assert (outcome.status, outcome.stdout) == (0, ""), outcome.stderr
        return [_left(Path(order["folder"])) for order in orders]

    return run


def _left(folder: Path) -> Left:
    status = int((folder / "status").read_text())
    raised = folder / "raised"
    return Left(
        folder,
        status,
        json.loads((folder / "stdout").read_text()) if status == 0 else {},
        (folder / "stderr").read_text(errors="replace"),
        int(raised.read_text()) if raised.exists() else 0,
    )
