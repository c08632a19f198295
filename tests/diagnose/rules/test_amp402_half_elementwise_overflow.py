from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.diagnose.judging import half, judge, labelled, line_of, only, serious


class Stream(nn.Module):
    """A residual stream to which every block adds."""

    def __init__(self, gain: float, float32: bool) -> None:
        super().__init__()
        self.enter, self.norm, self.leave = nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 4)
        self.blocks = nn.ModuleList(nn.Linear(32, 32) for _ in range(6))
        self.gain, self.float32 = gain, float32

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        stream = self.enter(x)
        if self.float32:
            stream = stream.float()
        for block in self.blocks:
            branch = torch.tanh(block(self.norm(stream))) * self.gain
            stream = stream + branch.to(stream.dtype)
        out: torch.Tensor = self.leave(self.norm(stream))
        return out


def train(gain: float, float32: bool = False, from_step: int = 0, kind: type[Stream] = Stream) -> None:
    model = kind(1.0, float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**7)
    for step in range(9):
        x, y = labelled()
        model.gain = gain if step >= from_step else 1.0
        optimizer.zero_grad()
        with half():
            loss = F.cross_entropy(model(x).float(), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def masked_out() -> None:
    """A product that overflows and goes nowhere."""
    model = nn.Linear(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu")
    for _ in range(4):
        x, y = labelled()
        optimizer.zero_grad()
        with half():
            out = model(x)
            (out * 60000.0) * 60000.0
            loss = (out - F.one_hot(y, 4).to(out.dtype)).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@pytest.mark.parametrize("from_step", [0, 4])
def test_a_residual_stream_outgrows_half(tmp_path: Path, from_step: int) -> None:
    found = judge(tmp_path, lambda: train(2e4, from_step=from_step))
    assert serious(found) == ["AMP402"]
    finding = only(found, "AMP402")
    assert finding.where.line == line_of(Stream.forward, "stream = stream + branch")
    assert finding.where.steps is not None
    assert finding.where.steps[0] >= from_step


@pytest.mark.parametrize(("gain", "float32"), [(1.0, False), (2e4, True)])
def test_silent_on_a_small_or_a_float32_stream(tmp_path: Path, gain: float, float32: bool) -> None:
    assert serious(judge(tmp_path, lambda: train(gain, float32))) == []


def test_silent_on_an_overflow_that_reaches_nothing(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, masked_out)) == []


class HalfStream(Stream):
    """The script casts to float16 itself, where autocast had done so before: these casts are no ops."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        stream = self.enter(x).half()
        for block in self.blocks:
            stream = stream + torch.tanh(block(self.norm(stream))).half() * self.gain
        return self.leave(self.norm(stream))  # type: ignore[no-any-return]


def degrees() -> None:
    """A float32 number is cast by the script, and what it multiplies is half by autocast."""
    model = nn.Linear(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**7)
    for _ in range(5):
        x, y = labelled()
        degree = torch.full((64, 1), 6e4)
        optimizer.zero_grad()
        with half():
            out = model(x * 2) * degree.half()
            loss = F.cross_entropy((out / degree.half()).float(), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def test_casts_of_the_script_are_what_has_to_go(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: train(2e4, kind=HalfStream))
    finding = only(found, "AMP402")
    first, second = (
        line_of(HalfStream.forward, "self.enter"),
        line_of(HalfStream.forward, "stream = stream +"),
    )
    assert finding.change.set == {}
    assert f":{first} and " in finding.recommendation
    assert f":{second}," in finding.recommendation


@pytest.mark.parametrize("run", [lambda: train(2e4), degrees])
def test_an_override_is_advised_where_it_reaches_the_value(tmp_path: Path, run: Callable[[], None]) -> None:
    finding = only(judge(tmp_path, run), "AMP402")
    assert finding.change.set
    assert ".half" not in finding.recommendation
