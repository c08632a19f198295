from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ampscope.hooks.postmortem import PostMortem, op_name
from tests.support.opview import View

Rows = list[dict[str, Any]]


def examine(loss: torch.Tensor, model: nn.Module | None = None) -> tuple[Rows, Rows]:
    found = PostMortem(View(model))
    return found.examine([loss]), found.inputs


def origin(rows: Rows) -> dict[str, Any]:
    (row,) = [r for r in rows if r["reached"]]
    return row


def batch(
    model: nn.Module, formula: Callable[[torch.Tensor], torch.Tensor], size: float = 1.0
) -> torch.Tensor:
    torch.manual_seed(0)
    with torch.autocast("cpu", dtype=torch.float16):
        return formula(model(torch.randn(8, 4) * size)).float().mean()


FORMULAS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], str]] = {
    "exp": (lambda h: torch.exp(h * 100), "aten::exp"),
    "log of zero": (lambda h: torch.log(torch.relu(h)), "aten::log"),
    "division by zero": (lambda h: h / torch.relu(h), "aten::div"),
    "root of negative": (lambda h: torch.sqrt(h * -1.0), "aten::sqrt"),
    "product": (lambda h: (h * 3e4) * (h * 3e4), "aten::mul"),
    "sum": (lambda h: (h * 3e4).abs().sum(), "aten::sum"),
    "reciprocal": (lambda h: (h * 0.0).reciprocal(), "aten::reciprocal"),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_the_op_at_which_it_began(name: str) -> None:
    formula, expected = FORMULAS[name]
    rows, _ = examine(batch(nn.Linear(4, 3), formula))
    row = origin(rows)

    assert row["op"] == expected
    assert row["out_nonfinite"] > 0
    assert row["in_nonfinite"] == 0
    assert row["reached"] == "loss"
    assert row["out_dtypes"] == ["float16"]


def test_float32_would_have_survived() -> None:
    row = origin(examine(batch(nn.Linear(4, 3), FORMULAS["product"][0]))[0])

    assert row["shadow_nonfinite"] == 0
    assert row["shadow_amax"] > 65504


def test_a_matrix_product_names_the_module() -> None:
    first, second = nn.Linear(4, 64), nn.Linear(64, 64)
    with torch.no_grad():
        first.weight.fill_(3e3)
        second.weight.fill_(10.0)
    model = nn.Sequential(first, second, nn.Linear(64, 2))
    rows, _ = examine(batch(model, lambda h: h), model)
    row = origin(rows)

    assert (row["op"], row["module"]) == ("aten::addmm", "1")


def test_rows_follow_the_flow_of_data() -> None:
    rows, _ = examine(batch(nn.Linear(4, 3), lambda h: torch.log(torch.relu(h) * 2)))
    by_op = {r["op"]: r for r in rows}

    log, product = by_op["aten::log"], by_op["aten::mul"]
    assert log["tensor_ids"][0] == product["tensor_ids"][-1]
    assert product["scalars"] == [2.0]
    assert [r["seq"] for r in rows] == sorted(r["seq"] for r in rows)


def test_what_came_from_outside() -> None:
    data = torch.randn(8, 4)
    data[2, 1] = float("nan")
    model = nn.Linear(4, 1)
    rows, inputs = examine(F.mse_loss(model(data), torch.zeros(8, 1)), model)

    assert origin(rows)["in_nonfinite"] == 1
    assert [(i["dtype"], i["nan"], i["role"]) for i in inputs] == [("float32", 1, "input")]


def test_a_target_that_is_missing() -> None:
    rows, inputs = examine(F.mse_loss(nn.Linear(4, 1)(torch.randn(8, 4)), torch.full((8, 1), float("nan"))))

    assert origin(rows)["op"] == "aten::mse_loss"
    assert inputs[0]["nan"] == 8


def test_the_graph_is_left_as_it_was() -> None:
    model = nn.Linear(4, 3)
    loss = batch(model, lambda h: torch.exp(h * 100))
    twin = batch(model, lambda h: torch.exp(h * 100))
    examine(loss)
    loss.backward()
    expected = model.weight.grad
    model.weight.grad = None
    twin.backward()

    assert expected is not None
    assert model.weight.grad is not None
    assert (
        torch.equal(expected, model.weight.grad, equal_nan=True)
        if False
        else _same(expected, model.weight.grad)
    )


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.numpy().tobytes() == b.numpy().tobytes()


def test_nothing_to_tell() -> None:
    assert examine(batch(nn.Linear(4, 3), lambda h: h)) == ([], [])
    assert examine(torch.tensor(float("nan"))) == ([], [])


def test_names_of_nodes() -> None:
    x = torch.ones(2, 2, requires_grad=True)
    made = [x.softmax(-1), x.half(), x.norm(), x @ x, F.nll_loss(x.log_softmax(-1), torch.tensor([0, 1]))]

    assert [op_name(t.grad_fn) for t in made] == [
        "aten::_softmax", "aten::_to_copy", "aten::linalg_vector_norm", "aten::mm", "aten::nll_loss_forward",
    ]  # fmt: skip
