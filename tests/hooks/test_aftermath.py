from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from ampscope.hooks.aftermath import LOOKS, Aftermath
from tests.support.opview import View


class Stage(View):
    """As much of a session as a collector on its own needs."""

    def __init__(self) -> None:
        super().__init__()
        self.books = SimpleNamespace(nested_s=None)
        self.settings = SimpleNamespace(level="watch")
        self.segment = SimpleNamespace(
            level="range", index=0, own_s=0.0, work_began=1.0, micro=0, nonfinite_forward=False
        )
        self.failed: BaseException | None = None
        self.rows: list[tuple[str, dict[str, Any]]] = []

    def emit(self, table: str, **row: Any) -> dict[str, Any]:
        self.rows.append((table, row))
        return row

    def fail(self, collector: object, error: Exception) -> None:
        raise error


@pytest.fixture
def stage() -> Any:
    session = Stage()
    collector: Any = Aftermath(session)
    collector.install()
    yield SimpleNamespace(session=session, collector=collector)
    session.segment.micro = 1
    collector.remove()


def bad_loss() -> torch.Tensor:
    layer = nn.Linear(4, 4)
    nn.init.constant_(layer.weight, 0.1)
    return torch.exp(layer(torch.ones(2, 4)) * 1e4).sum()


def origins(session: Stage) -> list[str]:
    return [row["op"] for table, row in session.rows if table == "ops" and row["reached"]]


def test_a_bad_loss_is_examined_once_per_segment(stage: Any) -> None:
    loss = bad_loss()
    stage.collector.on_bad_loss([loss])
    stage.collector.on_bad_loss([loss])

    assert origins(stage.session) == ["aten::exp"]


def test_only_a_few_per_run_and_none_that_a_census_has_seen(stage: Any) -> None:
    for index in range(LOOKS + 2):
        stage.session.segment.index = index
        stage.collector.on_bad_loss([bad_loss()])
    assert len(origins(stage.session)) == LOOKS

    stage.collector._looks = 0
    for index, level in enumerate(("census", "watch"), start=100):
        stage.session.segment.index, stage.session.segment.level = index, level
        stage.collector.on_bad_loss([bad_loss()])
    assert len(origins(stage.session)) == LOOKS


def test_checkpointed_regions_are_not_computed_again(stage: Any) -> None:
    layer = nn.Linear(4, 4)
    nn.init.constant_(layer.weight, 0.1)
    calls: list[int] = []

    def block(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return torch.exp(layer(x) * 1e4)

    loss = checkpoint(block, torch.ones(2, 4), use_reentrant=False).sum()
    stage.collector.on_bad_loss([loss])

    assert calls == [1]
    assert stage.session.rows == []


def test_a_script_that_raises_at_its_loss(stage: Any) -> None:
    def step() -> None:
        loss = bad_loss()
        if not torch.isfinite(loss):
            raise RuntimeError("the loss is not finite")

    with pytest.raises(RuntimeError) as caught:
        step()
    stage.session.failed = caught.value
    stage.collector.remove()

    assert origins(stage.session) == ["aten::exp"]
    assert stage.session.segment.nonfinite_forward


def test_a_script_that_leaves_its_loop(stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "loss", bad_loss(), raising=False)
    stage.collector.remove()

    assert origins(stage.session) == ["aten::exp"]


def test_nothing_is_looked_for_after_a_backward(stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "loss", bad_loss(), raising=False)
    stage.session.segment.micro = 1
    stage.collector.remove()

    assert stage.session.rows == []
