from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from tests.diagnose.judging import codes, half, judge, labelled, line_of, only, serious


def train(outlier: float, guard: bool = False) -> None:
    """One batch with an outlier meets a batch norm in half."""
    model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**7)
    for step in range(12):
        x, y = labelled()
        if step == 4:
            x[3] *= outlier
        if guard:
            x = x.clamp(-5.0, 5.0)
        optimizer.zero_grad()
        with half():
            loss = F.cross_entropy(model(x).float(), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def moving_average(outlier: float) -> None:
    """The loss is divided by its own moving average, kept as a plain tensor."""
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**7)
    average = torch.ones(())
    for step in range(12):
        x, y = labelled()
        if step == 4:
            x[3] = outlier
        optimizer.zero_grad()
        with half():
            loss = F.cross_entropy(model(x).float(), y)
        average = 0.9 * average + 0.1 * loss.detach()
        scaler.scale(loss / average).backward()
        scaler.step(optimizer)
        scaler.update()


def test_running_statistics(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: train(1e5))
    assert serious(found) == ["AMP410"]
    finding = only(found, "AMP410")
    assert finding.where.tensor in ("1.running_mean", "1.running_var")
    assert finding.where.steps is not None
    assert finding.where.steps[0] == 4


def test_an_average_kept_by_hand(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: moving_average(1e5))
    assert serious(found)[0] == "AMP410"


def test_silent_without_the_outlier_or_with_a_guard(tmp_path: Path) -> None:
    assert "AMP410" not in codes(judge(tmp_path, lambda: train(1.0)))
    assert "AMP410" not in codes(judge(tmp_path / "guarded", lambda: train(1e5, guard=True)))


class MeanSquare(nn.Module):
    """Divides by a running root mean square: an inf in it gives zeros, and no NaN anywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("square", torch.ones(32))
        self.square: torch.Tensor

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        self.square.mul_(0.95).add_(0.05 * h.detach().square().mean(0).float())
        return h / self.square.sqrt()


def divide_by_buffer(outlier: float) -> None:
    model = nn.Sequential(nn.Linear(16, 32), MeanSquare(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**7)
    for step in range(16):
        x, y = labelled()
        if step == 3:
            x = x * outlier
        optimizer.zero_grad()
        with half():
            loss = F.cross_entropy(model(x).float(), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def test_an_infinite_buffer_that_gives_zeros(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: divide_by_buffer(3e3))
    assert serious(found)[0] == "AMP410"
    assert only(found, "AMP410").where.line == line_of(MeanSquare.forward, "self.square.mul_")


def test_silent_while_that_buffer_is_finite(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: divide_by_buffer(1.0))) == []


def centred_targets(outlier: float) -> None:
    """A running centre is read before it is updated; rows whose target is not finite are left out of the loss."""
    student, teacher = nn.Linear(16, 8), nn.Linear(16, 8).requires_grad_(False)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**7)
    centre = torch.zeros(8)
    for step in range(16):
        x, _ = labelled()
        seen = x.clone()
        if step == 5:
            seen[3] = outlier
        optimizer.zero_grad()
        with half(), torch.no_grad():
            out = teacher(seen).float()
        target = torch.softmax(out - centre, 1)
        centre.mul_(0.9).add_(out.mean(0), alpha=0.1)
        with half():
            guess = student(x)
        rows = -(target * torch.log_softmax(guess.float(), 1)).sum(1)
        rows = torch.where(target.isfinite().all(1), rows, 0.0)
        scaler.scale(rows.mean()).backward()
        scaler.step(optimizer)
        scaler.update()


def test_an_average_that_is_read_before_it_is_updated(tmp_path: Path) -> None:
    found = judge(tmp_path, lambda: centred_targets(1e6))
    assert serious(found)[0] == "AMP410"
    finding = only(found, "AMP410")
    assert finding.where.line == line_of(centred_targets, "out - centre")
    assert "AMP201" not in serious(found)


def test_silent_while_the_average_is_finite(tmp_path: Path) -> None:
    assert serious(judge(tmp_path, lambda: centred_targets(1.0))) == []
