from __future__ import annotations

from typing import Any

import pytest
import torch

from ampscope.hooks.oprow import OP_COLUMNS, OpRows, Row
from ampscope.hooks.tensorfacts import Limits
from tests.support.opview import View, watching

aten = torch.ops.aten


def call(rows: OpRows, func: Any, *args: Any, **kwargs: Any) -> Row:
    """A row as if the dispatcher had called, without a dispatcher."""
    op = rows.begin(func, args, kwargs)
    assert op is not None
    row = rows.finish(op, func(*args, **kwargs), 1e-6)
    assert row is not None
    return row


@pytest.fixture(autouse=True)
def _outside_the_dispatcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._C, "_RestorePythonTLSSnapshot", torch._C.DisableTorchFunction)


def test_columns() -> None:
    assert OP_COLUMNS[:4] == ("phase", "micro", "seq", "op")
    row = call(OpRows(View(), Limits()), aten.neg.default, torch.ones(2))
    assert tuple(row) == OP_COLUMNS
    assert row["host_s"] == 1e-6


def test_order_and_module() -> None:
    linear = torch.nn.Linear(2, 2)
    with watching(linear) as view:
        rows = OpRows(view, Limits())
        seen: list[Row] = []

        def run(module: Any, args: Any) -> None:
            seen.append(call(rows, aten.neg.default, torch.ones(2)))

        handle = linear.register_forward_pre_hook(run)
        linear(torch.ones(1, 2))
        handle.remove()
        seen.append(call(rows, aten.neg.default, torch.ones(2)))
    assert [(row["seq"], row["module"], row["phase"]) for row in seen] == [
        (0, "Linear", "forward"),
        (1, None, "other"),
    ]


def test_parameters_are_remembered_by_their_storage() -> None:
    linear = torch.nn.Linear(2, 2)
    rows = OpRows(View(linear), Limits())
    call(rows, aten.neg.default, linear.weight)
    whole = call(rows, aten._to_copy.default, linear.weight.detach(), dtype=torch.float16)
    part = call(rows, aten._to_copy.default, linear.weight.detach()[0], dtype=torch.float16)
    assert (whole["cast_source"], part["cast_source"]) == ("weight", None)
    (weight,) = rows.parameters
    assert weight == whole["tensor_ids"][0]


def test_huge_numbers_do_not_break_a_row() -> None:
    rows = OpRows(View(), Limits())
    op = rows.begin(aten.mul.Scalar, (torch.ones(1), 10**400), {})
    assert op is not None
    assert op.row["scalars"] == [float("inf")]


def test_a_call_that_raised() -> None:
    rows = OpRows(View(), Limits())
    op = rows.begin(aten.mm.default, (torch.ones(2, 3), torch.ones(2, 3)), {})
    assert op is not None
    row = rows.failed(op, RuntimeError("shapes"))
    assert (row["error"], row["out_dtypes"], len(row["tensor_ids"])) == ("RuntimeError", [], 2)


def test_meta_tensors_have_no_row() -> None:
    rows = OpRows(View(), Limits())
    assert rows.begin(aten.neg.default, (torch.ones(2, device="meta"),), {}) is None
