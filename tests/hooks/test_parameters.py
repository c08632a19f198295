from __future__ import annotations

import copy
import io
import pickle
import warnings
import weakref
from pathlib import Path

import torch
from torch import nn

from ampscope.hooks import install
from ampscope.hooks.parameters import Parameters
from tests.support.recording import batch, mlp, record, rows


def test_a_model_in_training_can_be_copied_saved_and_scripted(tmp_path: Path) -> None:
    def train() -> None:
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x, y = batch()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        twin = copy.deepcopy(model)
        assert not any(p._post_accumulate_grad_hooks for p in twin.parameters())
        assert torch.equal(pickle.loads(pickle.dumps(model))(x), model(x))
        buffer = io.BytesIO()
        torch.save(model, buffer)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            traced = torch.jit.trace(model, x)
        assert {node.kind() for node in traced.inlined_graph.nodes()} & {"aten::linear", "aten::sum"} == {
            "aten::linear"
        }
        assert torch.equal(traced(x), model(x))

    record(tmp_path, train)


def test_hooks_are_gone_afterwards(tmp_path: Path) -> None:
    model = mlp()

    def train() -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x, y = batch()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    record(tmp_path, train)
    assert not any(p._post_accumulate_grad_hooks for p in model.parameters())


def test_an_optimizer_in_backward_is_recorded(tmp_path: Path) -> None:
    def train() -> None:
        model = mlp()
        optimizers: dict[torch.Tensor, torch.optim.SGD] = {
            p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()
        }

        def step(param: torch.Tensor) -> None:
            optimizers[param].step()
            optimizers[param].zero_grad()

        x, y = batch()
        for param in model.parameters():
            param.register_post_accumulate_grad_hook(step)
        for _ in range(2):
            nn.functional.cross_entropy(model(x), y).backward()

    trace = record(tmp_path, train)
    fed = rows(trace, "SELECT n_params FROM calls WHERE call='backward' ORDER BY seq")
    assert [r["n_params"] for r in fed] == [4, 4]
    assert {r["outcome"] for r in rows(trace, "SELECT outcome FROM steps")} <= {"stepped", "cut_off"}


def test_parameters_that_only_an_optimizer_knows_have_names(tmp_path: Path) -> None:
    def train() -> None:
        w = torch.zeros(3, requires_grad=True)
        optimizer = torch.optim.SGD([w], lr=0.1)
        (w - 1).pow(2).sum().backward()
        optimizer.step()

    found = rows(record(tmp_path, train), "SELECT name, in_model, got_grad FROM params")
    assert found == [{"name": "SGD#0.group0.param0", "in_model": False, "got_grad": True}]


def test_what_a_lost_parameter_was_fed_does_not_count_for_one_with_its_identity(tmp_path: Path) -> None:
    def train() -> None:
        session = install.current()
        assert session is not None
        watched = next(c for c in session.collectors if isinstance(c, Parameters))
        torch.ones(2, requires_grad=True).sum().backward()
        param = nn.Parameter(torch.ones(2))
        # When an object comes by the identity of one that is gone is for the interpreter to say.
        watched._handles[id(param)] = (weakref.ref(torch.ones(1)), None)
        session.segment.fed[id(param)] = 0
        optimizer = torch.optim.SGD([param], lr=0.1)
        optimizer.zero_grad()
        param.sum().backward()
        optimizer.step()

    steps = rows(record(tmp_path, train), "SELECT outcome FROM steps")
    assert steps == [{"outcome": "stepped"}]
