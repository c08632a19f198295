from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from ampscope.hooks.blocks import BLOCKS, blocks_of
from tests.support.recording import batch, mlp, record, rows


class Net(nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(layers))
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        out: torch.Tensor = self.head(x)
        return out


def test_blocks_are_taken_at_one_depth() -> None:
    assert blocks_of(nn.Linear(2, 2)) == []
    small = Net(4)
    names = {id(m): n for n, m in small.named_modules()}
    assert [names[id(m)] for m in blocks_of(small)] == [
        *[f"layers.{i}.{j}" for i in range(4) for j in range(2)],
        "head",
    ]
    assert len(blocks_of(Net(12))) == 13
    assert len(blocks_of(Net(100))) <= BLOCKS


def test_a_single_bad_batch_on_an_off_step_is_placed(tmp_path: Path) -> None:
    def train() -> None:
        model = Net(4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        for step in range(20):
            x, y = batch(4096)
            if step == 13:
                model.layers[2].register_forward_hook(lambda m, i, o: o / 0.0)
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            if step == 13:
                model.layers[2]._forward_hooks.clear()

    found = rows(
        record(tmp_path, train, budget=1000.0, level="pulse"),
        'SELECT step, name, role, "order", nan FROM nonfinite WHERE role=\'activation\' ORDER BY step, "order"',
    )
    assert found[0]["step"] == 13
    assert found[0]["name"] == "layers.3.0:out", "the first block after the one that went bad"
    assert found[0]["nan"] is None, "a sum tells that, not how many"


def test_the_sentinel_gives_way_where_it_is_dear(tmp_path: Path) -> None:
    from ampscope.hooks import install

    left: list[int] = []

    def train() -> None:
        model = Net(6)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        session = install.current()
        assert session is not None
        for _ in range(12):
            x, y = batch(4)
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        left.append(len(next(c for c in session.collectors if c.name == "blocks").wanted))  # type: ignore[attr-defined]

    record(tmp_path, train, budget=1e-3, level="pulse")
    assert left == [0]


def test_a_healthy_run_has_no_rows(tmp_path: Path) -> None:
    def train() -> None:
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(4):
            x, y = batch()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()

    assert record(tmp_path, train).rows("nonfinite") == 0
