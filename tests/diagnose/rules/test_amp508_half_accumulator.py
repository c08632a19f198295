from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from ampscope.diagnose import Diagnosis
from tests.diagnose.judging import classifier, half, judge, labelled, line_of, only, serious


class Sums:
    """A running loss that is replaced, a counter in place, and counters per class, in one dtype."""

    def __init__(self, stored: torch.dtype) -> None:
        self.loss = torch.zeros((), dtype=stored)
        self.seen = torch.zeros((), dtype=stored)
        self.classes = torch.zeros(4, dtype=stored)

    def replace(self, loss: torch.Tensor) -> None:
        self.loss = self.loss + loss.detach().to(self.loss.dtype)

    def count(self) -> None:
        self.seen += 1.0

    def count_classes(self) -> None:
        self.classes += torch.ones_like(self.classes)


def train(path: Path, stored: torch.dtype, per_step: int, steps: int = 34, reset: int = 10**9) -> Diagnosis:
    def run() -> None:
        model = classifier()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        sums = Sums(stored)
        for step in range(steps):
            if step % reset == 0:
                sums = Sums(stored)
            x, y = labelled()
            optimizer.zero_grad()
            with half(torch.bfloat16):
                loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            for _ in range(per_step):
                sums.replace(loss)
                sums.count()
                sums.count_classes()

    return judge(path, run, every=1000, budget=1e4)


@pytest.mark.parametrize(("stored", "per_step"), [(torch.bfloat16, 20), (torch.float16, 110)])
def test_half_sums_stop_growing(tmp_path: Path, stored: torch.dtype, per_step: int) -> None:
    found = train(tmp_path, stored, per_step)
    assert serious(found) == ["AMP508"] * 3
    lines = {f.where.line for f in found.findings}
    assert line_of(Sums.replace, "self.loss +") in lines
    assert line_of(Sums.count, "+= 1.0") in lines
    assert line_of(Sums.count_classes, "+= torch") in lines
    assert str(stored).removeprefix("torch.") in found.findings[0].claim


def test_silent_in_float32(tmp_path: Path) -> None:
    assert serious(train(tmp_path, torch.float32, 20)) == []


def test_a_sum_that_will_stop_is_named_before(tmp_path: Path) -> None:
    found = train(tmp_path, torch.bfloat16, 6, steps=60)
    assert serious(found) == []
    finding = next(f for f in found.findings if f.where.line == line_of(Sums.count, "+= 1.0"))
    stop = next(e for e in finding.evidence if e.metric == "size at which it stops")
    assert (finding.code, finding.severity, stop.value, stop.basis) == ("AMP508", "info", 256.0, "predicted")


def test_silent_when_the_sum_starts_anew_in_time(tmp_path: Path) -> None:
    assert "AMP508" not in train(tmp_path, torch.bfloat16, 2, reset=10).coverage.fired


def gradients_and_activations(path: Path) -> Diagnosis:
    """Additions in half that lose small elements and are no sums over time: a residual stream, noise on the data."""

    def run() -> None:
        model = classifier().bfloat16()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        data = [labelled() for _ in range(4)]
        for step in range(34):
            x, y = data[step % 4]
            x = x.bfloat16()
            x += 1e-4 * torch.randn_like(x)
            optimizer.zero_grad()
            hidden = model[0](x)
            hidden = hidden + 1e-3 * torch.tanh(hidden)
            F.cross_entropy(model[4](hidden).float(), y).backward()
            optimizer.step()

    return judge(path, run, every=1000, budget=1e4)


def test_silent_on_sums_within_a_step(tmp_path: Path) -> None:
    found = gradients_and_activations(tmp_path)
    assert "AMP508" not in found.coverage.fired
    with pytest.raises(AssertionError):
        only(found, "AMP508")
