from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from ampscope.hooks.modules import MAX_ITEMS, tensors_in
from tests.support.recording import batch, mlp, record, rows


@dataclass
class Output:
    logits: torch.Tensor
    extra: dict[str, torch.Tensor]


def test_tensors_are_found_in_nested_outputs() -> None:
    one, two, three = torch.ones(1), torch.ones(2), torch.ones(3)
    assert [t.numel() for t in tensors_in((one, [two, {"a": three}], "text", None))] == [1, 2, 3]
    assert [t.numel() for t in tensors_in(Output(two, {"a": one}))] == [2, 1]
    assert tensors_in(object()) == []


@dataclass
class Slots:
    __slots__ = ("y",)
    y: torch.Tensor


def test_outputs_that_do_not_let_themselves_be_looked_into_hold_nothing() -> None:
    class Untouchable:
        def __getattribute__(self, name: str) -> None:
            raise RuntimeError(name)

    class Closed(dict[str, torch.Tensor]):
        def values(self) -> None:  # type: ignore[override]
            raise RuntimeError

    one = torch.ones(1)
    assert tensors_in(Untouchable()) == tensors_in(Closed(y=one)) == []
    assert tensors_in([one, Untouchable(), one]) == [one]
    assert tensors_in(Slots(one)) == [one]
    held: list[object] = [one]
    held.append(held)
    assert len(tensors_in(held)) == 3
    assert len(tensors_in([*range(MAX_ITEMS), one])) == 0


def test_roots_leaves_calls_and_dtypes(tmp_path: Path) -> None:
    def train() -> None:
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x, y = batch()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(x), y) + 0 * model(x).sum()
        loss.backward()
        optimizer.step()

    modules = {r["name"]: r for r in rows(record(tmp_path, train), "SELECT * FROM modules WHERE step=0")}
    assert set(modules) == {"Sequential", "0", "1", "2"}
    assert modules["Sequential"]["is_root"]
    assert modules["0"]["calls"] == 2
    assert list(modules["0"]["in_dtypes"]) == ["float32"]
    assert list(modules["0"]["out_dtypes"]) == ["bfloat16"]
    assert modules["0"]["autocast_dtype"] == "bfloat16"


class Own(nn.Module):
    """A model with a forward of its own, given as a function."""

    def __init__(self, forward: Callable[[Own, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.first, self.second, self._forward = nn.Linear(8, 8), nn.Linear(8, 3), forward

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._forward(self, x)


def in_all(model: Own, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out: torch.Tensor = model.second(model.first(x)).float()
    return out


def in_the_second(model: Own, x: torch.Tensor) -> torch.Tensor:
    x = model.first(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out: torch.Tensor = model.second(x).float()
    return out


def off_in_front(model: Own, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", enabled=False):
        x = x * 2
    return in_all(model, x)


decorated = torch.autocast("cpu", dtype=torch.bfloat16)(lambda model, x: model.second(model.first(x)).float())


@pytest.mark.parametrize(
    ("forward", "expected"),
    [
        (in_all, "bfloat16"),
        (decorated, "bfloat16"),
        (off_in_front, "bfloat16"),
        (in_the_second, None),
        (lambda model, x: model.second(model.first(x)), None),
    ],
)
def test_an_autocast_that_the_forward_itself_enters_is_that_of_the_step(
    tmp_path: Path, forward: Callable[[Own, torch.Tensor], torch.Tensor], expected: str | None
) -> None:
    def train() -> None:
        model = Own(forward)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            x, y = batch()
            out = model(x)
            with torch.autocast("cpu", dtype=torch.float16):
                loss = nn.functional.cross_entropy(out, y)
            loss.backward()
            optimizer.step()

    steps = rows(record(tmp_path, train), "SELECT autocast_dtype, autocast_device FROM steps ORDER BY step")
    assert [s["autocast_dtype"] for s in steps] == [expected] * 3
    assert [s["autocast_device"] for s in steps] == [expected and "cpu"] * 3


@pytest.mark.parametrize("reentrant", [True, False])
def test_recomputation_is_not_read_twice(tmp_path: Path, reentrant: bool) -> None:
    def train() -> None:
        inner, head = nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Linear(8, 3)

        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner, self.head = inner, head

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                out: torch.Tensor = self.head(checkpoint(self.inner, x, use_reentrant=reentrant))
                return out

        net = Net()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        x, y = batch()
        nn.functional.cross_entropy(net(x.requires_grad_()), y).backward()
        optimizer.step()

    trace = record(tmp_path, train)
    gradients = rows(
        trace, "SELECT name, count(*) AS n FROM tensors WHERE role='activation_grad' GROUP BY 1 ORDER BY 1"
    )
    assert {"name": "inner.0:out", "n": 1} in gradients
    assert all(r["n"] == 1 for r in gradients)


def test_a_forward_that_raises_leaves_no_module_behind(tmp_path: Path) -> None:
    class Broken(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("no")

    def train() -> None:
        model, broken = mlp(), nn.Sequential(nn.Linear(8, 8), Broken())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            x, y = batch()
            with pytest.raises(RuntimeError, match="no"):
                broken(x)
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()

    roots = rows(record(tmp_path, train), "SELECT DISTINCT name FROM modules WHERE is_root")
    assert "Sequential#1" in {r["name"] for r in roots}


def test_the_sentinel_sees_a_bad_root_and_where_it_came_from(tmp_path: Path) -> None:
    def train() -> None:
        model = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x, y = batch()
        x[0, 0] = float("nan")
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    trace = record(tmp_path, train)
    assert rows(trace, "SELECT isnan(root_sum) AS bad FROM steps") == [{"bad": True}]
    roles = {(r["role"], r["name"]) for r in rows(trace, "SELECT role, name FROM nonfinite")}
    assert ("input", "Sequential:in") in roles
    assert ("buffer", "1.running_mean") in roles
