from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from tests.support.recording import batch, mlp, record, rows


def one_step(dtype: torch.dtype, lr: float) -> None:
    model = mlp().to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    x, y = batch()
    nn.functional.cross_entropy(model(x.to(dtype)).float(), y).backward()
    optimizer.step()


def test_absorbed_updates_are_observed_in_a_half_weight(tmp_path: Path) -> None:
    row = rows(
        record(tmp_path, lambda: one_step(torch.bfloat16, 1e-6)),
        "SELECT * FROM updates WHERE name='0.weight'",
    )[0]
    assert row["grad_nonzero"] > 100
    assert row["unchanged"] > 0.9 * row["grad_nonzero"]


def test_absorption_is_predicted_for_a_float32_weight(tmp_path: Path) -> None:
    row = rows(
        record(tmp_path, lambda: one_step(torch.float32, 1e-4)), "SELECT * FROM updates WHERE name='0.weight'"
    )[0]
    assert row["moved"] > 100
    assert row["absorbed_bf16"] > row["absorbed_fp16"] > 0
    assert row["below_2_8"] >= row["below_2_11"] > 0
    assert sum(row["ratio_hist"]) == row["moved"]


def test_large_parameters_are_sampled_and_exact_compares_all(tmp_path: Path) -> None:
    def train() -> None:
        layer = nn.Linear(300, 300)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        layer(torch.randn(4, 300)).pow(2).sum().backward()
        optimizer.step()

    query = "SELECT numel, of_numel FROM updates WHERE name='weight'"
    assert rows(record(tmp_path / "a", train), query) == [{"numel": 65536, "of_numel": 90000}]
    assert rows(record(tmp_path / "b", train, exact=True), query) == [{"numel": 90000, "of_numel": 90000}]
