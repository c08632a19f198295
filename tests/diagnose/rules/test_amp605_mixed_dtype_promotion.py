from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from ampscope.diagnose import Diagnosis
from tests.diagnose.judging import judge, labelled, line_of, only, serious


class Scaled(nn.Module):
    """A layer whose output is multiplied by a float32 parameter per channel, or by the same in half."""

    def __init__(self, cast: bool) -> None:
        super().__init__()
        self.inner, self.head, self.cast = nn.Linear(16, 64), nn.Linear(64, 4), cast
        self.scale = nn.Parameter(torch.ones(64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.inner(x)
        scale = self.scale.to(h.dtype) if self.cast else self.scale
        h = h * scale  # here
        out: torch.Tensor = self.head(torch.tanh(h).square())
        return out


def train(path: Path, cast: bool, amp: bool = True) -> Diagnosis:
    def run() -> None:
        model = Scaled(cast)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        for _ in range(3):
            x, y = labelled()
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp):
                loss = F.cross_entropy(model(x).float() * 1.0, y)
            loss.backward()
            optimizer.step()

    return judge(path, run)


def test_a_float32_scale_widens_the_activations(tmp_path: Path) -> None:
    found = train(tmp_path, cast=False)
    finding = only(found, "AMP605")
    assert serious(found) == []
    assert finding.severity == "info"
    assert finding.where.line == line_of(Scaled.forward, "# here")
    assert "64x64" in finding.claim


def test_silent_when_it_is_cast_and_without_autocast(tmp_path: Path) -> None:
    assert "AMP605" not in train(tmp_path / "a", cast=True).coverage.fired
    assert "AMP605" not in train(tmp_path / "b", cast=False, amp=False).coverage.fired
