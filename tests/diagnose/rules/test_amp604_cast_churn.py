from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from ampscope.diagnose import Diagnosis, Finding
from ampscope.trace.reader import open_trace
from tests.diagnose.handmade import Row, op, step, write
from tests.diagnose.judging import checked, half, judge, line_of, only


class Cell(nn.Module):
    """A recurrent cell that enters autocast itself, or leaves it to the caller."""

    def __init__(self, inside: bool, width: int = 128) -> None:
        super().__init__()
        self.new, self.old, self.head = nn.Linear(4, width), nn.Linear(width, width), nn.Linear(width, 1)
        self.inside = inside

    def forward(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        with half(torch.bfloat16) if self.inside else nullcontext():  # here
            h = torch.tanh(self.new(x) + self.old(h))
        return h.float()


def sequence(cell: Cell, cache: bool = True) -> torch.Tensor:
    x, h = torch.randn(4, 8, 4), torch.zeros(4, 128)
    outer = nullcontext() if cell.inside else torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=cache)
    with outer:  # entered here
        for t in range(8):
            h = cell(x[:, t], h)
    return F.mse_loss(cell.head(h), x[..., 0].mean(1, keepdim=True))


def train(path: Path, inside: bool, cache: bool = True) -> Diagnosis:
    def run() -> None:
        cell = Cell(inside)
        optimizer = torch.optim.SGD(cell.parameters(), lr=1e-3)
        for _ in range(3):
            optimizer.zero_grad()
            sequence(cell, cache).backward()
            optimizer.step()

    return judge(path, run)


def test_autocast_entered_at_every_time_step(tmp_path: Path) -> None:
    finding = only(train(tmp_path, inside=True), "AMP604")
    assert finding.where.line == line_of(Cell.forward, "# here")
    assert "old.weight" in finding.claim
    assert "8 times within one step" in finding.claim


def test_a_cache_that_is_switched_off(tmp_path: Path) -> None:
    finding = only(train(tmp_path, inside=False, cache=False), "AMP604")
    assert "cache_enabled=False" in finding.claim
    assert finding.where.line == line_of(sequence, "# entered here")


def test_silent_with_one_context_around_the_loop(tmp_path: Path) -> None:
    assert "AMP604" not in train(tmp_path, inside=False).coverage.fired


def healthy() -> None:
    """Two views, a checkpoint, accumulation and evaluation: a weight is cast several times per step, and must be."""
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(3):
        optimizer.zero_grad()
        for _ in range(6):
            views = []
            for _ in range(2):
                x = torch.randn(8, 16, requires_grad=True)
                with half(torch.bfloat16):
                    views.append(checkpoint(model, x, use_reentrant=False))
            F.mse_loss(views[0].float(), views[1].float() + 1.0).backward()
        optimizer.step()
        with torch.no_grad():
            for _ in range(8):
                with half(torch.bfloat16):
                    model(torch.randn(8, 16))


def per_sample() -> None:
    """Gradients of one example each, taken by autograd.grad: no backward() in between, and no cast too many."""
    model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 2))
    params = list(model.parameters())
    optimizer = torch.optim.SGD(params, lr=1e-2)
    for _ in range(3):
        for p in params:
            p.grad = torch.zeros_like(p)
        for x in torch.randn(8, 1, 16):
            with half(torch.bfloat16):
                loss = model(x).float().square().mean()
            for p, g in zip(params, torch.autograd.grad(loss, params), strict=True):
                assert p.grad is not None
                p.grad += g / g.norm().clamp(min=1.0)
        optimizer.step()


def test_silent_where_every_example_has_a_graph_of_its_own(tmp_path: Path) -> None:
    assert "AMP604" not in judge(tmp_path, per_sample).coverage.fired


def test_silent_where_casts_are_needed(tmp_path: Path) -> None:
    assert "AMP604" not in judge(tmp_path, healthy).coverage.fired


def by_hand() -> None:
    weight = nn.Parameter(torch.randn(128, 128) / 12)
    optimizer = torch.optim.SGD([weight], lr=1e-3)
    for _ in range(3):
        optimizer.zero_grad()
        h = torch.randn(4, 128).bfloat16()
        for _ in range(10):
            h = torch.tanh(h @ weight.bfloat16())
        h.float().square().mean().backward()
        optimizer.step()


def test_casts_written_by_the_user(tmp_path: Path) -> None:
    finding = only(judge(tmp_path, by_hand), "AMP604")
    assert "by the script itself" in finding.claim
    assert finding.where.line == line_of(by_hand, "weight.bfloat16()")


def first_layer(looks: int, once: bool = False) -> None:
    """The weight of a first layer: backward does not read its copies, it only casts their gradients back."""
    weight, head = nn.Parameter(torch.randn(128, 128) / 12), nn.Linear(128, 1)
    optimizer = torch.optim.SGD([weight, *head.parameters()], lr=1e-3)
    for _ in range(3):
        optimizer.zero_grad()
        x = torch.randn(10, 4, 128).bfloat16()
        kept = weight.bfloat16() if once else None
        h = torch.zeros(4, 128)
        for t in range(10):
            copy = weight.bfloat16() if kept is None else kept
            h = h + torch.relu(x[t] @ copy).float()
        with torch.no_grad():
            for t in range(looks):
                x[t] @ weight.bfloat16()
        head(h).square().mean().backward()
        optimizer.step()


def test_casts_of_a_first_layer(tmp_path: Path) -> None:
    finding = only(judge(tmp_path, lambda: first_layer(0)), "AMP604")
    assert finding.where.tensor is not None
    assert "by the script itself" in finding.claim


def test_silent_on_a_first_layer_that_is_cast_once_and_looked_at_without_gradients(tmp_path: Path) -> None:
    assert "AMP604" not in judge(tmp_path, lambda: first_layer(9, once=True)).coverage.fired


def test_it_is_a_warning_when_it_takes_time(tmp_path: Path) -> None:
    """Host times are those of a busy machine, so they are written by hand."""

    def cast(seq: int, seconds: float) -> Row:
        made = op(
            1, seq, "_to_copy", "float32", out_dtypes=["bfloat16"], cast="autocast", cast_source="cell.weight"
        )
        return {**made, "tensor_ids": [7, 100 + seq], "host_s": seconds, "module": "cell"}

    def found(path: Path, seconds: float) -> Finding:
        back = [
            op(1, 50 + i, "mm", "bfloat16", phase="backward", tensor_ids=[100 + i, 200 + i], host_s=1e-3)
            for i in range(6)
        ]
        tables = {
            "steps": [step(i, level="census", autocast_dtype="bfloat16") for i in range(3)],
            "ops": [*(cast(i, seconds) for i in range(6)), *back],
        }
        with open_trace(write(path, tables)) as trace:
            return only(checked(trace), "AMP604")

    assert found(tmp_path / "a", 1e-3).severity == "warning"
    assert found(tmp_path / "b", 1e-6).severity == "info"
