from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn

from tests.support.recording import amp_training, batch, mlp, record, rows


def test_every_parameter_has_a_gradient_row_that_adds_up(tmp_path: Path) -> None:
    seen: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float64]]] = {}

    def train() -> None:
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x, y = batch()
        nn.functional.cross_entropy(model(x), y).backward()
        for name, param in model.named_parameters():
            assert param.grad is not None
            seen[name] = param.grad.double().numpy().ravel()
        optimizer.step()

    trace = record(tmp_path, train)
    found = {
        r["name"]: r for r in rows(trace, "SELECT * FROM tensors WHERE role='grad' AND stage='post_clip'")
    }
    assert set(found) == set(seen)
    for name, values in seen.items():
        row = found[name]
        nonzero = np.abs(values[values != 0])
        assert row["numel"] == values.size
        assert row["zeros"] == values.size - nonzero.size
        assert row["amax"] == nonzero.max()
        assert row["amin_nonzero"] == nonzero.min()
        np.testing.assert_allclose(row["sumsq"], (values**2).sum(), rtol=1e-12)
        exponents = np.floor(np.log2(nonzero)).astype(int)
        expected = np.bincount(exponents - row["hist_lo"], minlength=len(row["hist"]))
        np.testing.assert_array_equal(row["hist"], expected)


def test_activation_gradients_carry_the_scale(tmp_path: Path) -> None:
    trace = record(tmp_path, lambda: amp_training(1, init_scale=512.0))
    found = rows(trace, "SELECT DISTINCT scaled, scale, dtype FROM tensors WHERE role='activation_grad'")
    assert found == [{"scaled": True, "scale": 512.0, "dtype": "float16"}]


def test_optimizer_state_is_read_after_the_step(tmp_path: Path) -> None:
    trace = record(tmp_path, lambda: amp_training(1, init_scale=512.0))
    roles = {r["role"] for r in rows(trace, "SELECT DISTINCT role FROM tensors")}
    assert roles == {"grad", "weight", "exp_avg", "exp_avg_sq", "activation", "activation_grad"}


def test_a_glob_limits_what_is_read(tmp_path: Path) -> None:
    trace = record(tmp_path, lambda: amp_training(2), tensors="2.*")
    assert {r["name"] for r in rows(trace, "SELECT DISTINCT name FROM tensors")} <= {"2.weight", "2.bias"}


def test_in_place_relu_gives_the_values_the_module_returned(tmp_path: Path) -> None:
    def train() -> None:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 4), nn.ReLU(inplace=True), nn.Linear(4, 3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x, y = batch()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    trace = record(tmp_path, train)
    zeros = {
        r["name"]: r["zeros"] for r in rows(trace, "SELECT name, zeros FROM tensors WHERE role='activation'")
    }
    assert zeros["0:out"] == 0
    assert zeros["1:out"] > 0


def test_sparse_gradients_are_read(tmp_path: Path) -> None:
    def train() -> None:
        table = nn.Embedding(100, 4, sparse=True)
        optimizer = torch.optim.SparseAdam(table.parameters(), lr=0.1)
        table(torch.tensor([1, 2, 2])).pow(2).sum().backward()
        optimizer.step()

    row = rows(record(tmp_path, train), "SELECT numel, of_numel, amax FROM tensors WHERE role='grad'")[0]
    assert row["of_numel"] == 400
    assert row["numel"] <= 12
    assert row["amax"] > 0.0


def test_no_hook_stays_on_a_leaf_output(tmp_path: Path) -> None:
    leaf = nn.Parameter(torch.ones(3))

    class Same(nn.Module):
        def forward(self) -> torch.Tensor:
            return leaf

    def train() -> None:
        same = Same()
        optimizer = torch.optim.SGD([leaf], lr=0.1)
        for _ in range(3):
            same().sum().backward()
            optimizer.step()

    record(tmp_path, train)
    assert not leaf._backward_hooks
