from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from tests.support.recording import batch, record, rows


def compiled_training() -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 3))
    fast = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        x, y = batch()
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(fast(x), y)
        loss.backward()
        optimizer.step()


@pytest.fixture(autouse=True)
def _no_warnings_of_the_compiler() -> None:
    pytest.importorskip("torch._dynamo")


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")
def test_the_graphs_tell_their_dtypes_and_eager_steps_their_values(tmp_path: Path) -> None:
    trace = record(tmp_path / "compiled", compiled_training)
    graphs = rows(trace, "SELECT op, phase, in_dtypes FROM ops WHERE function LIKE 'compiled graph%'")
    assert {r["phase"] for r in graphs} == {"forward", "backward"}
    matmuls = [r for r in graphs if r["op"].endswith(("mm", "addmm"))]
    assert matmuls
    assert all(set(r["in_dtypes"]) == {"bfloat16"} for r in matmuls)

    eager = record(tmp_path / "eager", compiled_training, eager_census=True)
    assert rows(eager, "SELECT op FROM ops WHERE function LIKE 'compiled graph%' AND step < 2") == []
    gelu = rows(eager, "SELECT out_amax FROM ops WHERE op = 'aten::gelu' AND step = 1")
    assert gelu
    assert gelu[0]["out_amax"] > 0.0
    notes = rows(eager, "SELECT message FROM events WHERE subject = 'compiled'")
    assert notes
    assert "--eager-census" in notes[0]["message"]
