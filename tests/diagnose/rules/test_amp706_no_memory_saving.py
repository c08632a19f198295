from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from ampscope.diagnose import Diagnosis
from ampscope.trace.reader import open_trace
from tests.diagnose.handmade import H200, key, step, write
from tests.diagnose.judging import checked, half, judge, labelled, only, serious


class Stem(nn.Module):
    """A stem that runs outside of the region in half, and a small head inside of it."""

    def __init__(self, inside: bool) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(16, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh())
        self.head, self.inside = nn.Linear(128, 4), inside

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", enabled=self.inside, dtype=torch.bfloat16):
            h = self.stem(x)
        out: torch.Tensor = self.head(h)
        return out


def train(path: Path, inside: bool) -> Diagnosis:
    def run() -> None:
        model = Stem(inside)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        for _ in range(3):
            x, y = labelled()
            optimizer.zero_grad()
            with half(torch.bfloat16):
                loss = F.cross_entropy(model(x).float(), y)
            loss.backward()
            optimizer.step()

    return judge(path, run, every=1)


def test_activations_stay_in_float32(tmp_path: Path) -> None:
    found = train(tmp_path, inside=False)
    assert serious(found) == []
    finding = only(found, "AMP706")
    assert finding.severity == "info"
    assert (finding.where.module or "").startswith("stem")


def test_silent_when_they_are_half(tmp_path: Path) -> None:
    assert "AMP706" not in train(tmp_path, inside=True).coverage.fired


def test_on_a_gpu_most_of_them_is_a_warning(tmp_path: Path) -> None:
    output = {
        **key(0),
        "role": "activation",
        "name": "a:out",
        "module": "a",
        "dtype": "float32",
        "numel": 8,
        "of_numel": 8,
    }
    tables = {
        "steps": [step(i, autocast_dtype="float16", autocast_device="cuda") for i in range(3)],
        "modules": [{**key(0), "name": "a"}],
        "tensors": [output],
    }
    with open_trace(write(tmp_path, tables, devices=(H200,))) as trace:
        assert only(checked(trace), "AMP706").severity == "warning"
