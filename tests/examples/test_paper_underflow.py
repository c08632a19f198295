"""The claims of docs/paper.md, on a run that is short enough for every day."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
import torch

from ampscope.numerics import ExponentHistogram, what_if


@pytest.fixture(scope="module")
def paper() -> ModuleType:
    path = Path(__file__).parents[2] / "examples" / "paper_underflow.py"
    spec = importlib.util.spec_from_file_location("paper_underflow", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def gradients(paper: ModuleType) -> ExponentHistogram:
    torch.manual_seed(0)
    histogram, losses = paper.activation_gradients(paper.Detector(width=8), 6, 2.0, 0)
    assert all(0.0 < loss < 1.0 for loss in losses)
    assert isinstance(histogram, ExponentHistogram)
    return histogram


def test_scale_one_flushes_and_a_power_of_two_recovers(gradients: ExponentHistogram) -> None:
    lost = [what_if(gradients, "fp16", float(2**k)).flushed / gradients.nonzero for k in (0, 3, 9, 15)]
    assert lost[0] > 0.02
    assert lost == sorted(lost, reverse=True)
    assert lost[-1] < 1e-3
    assert what_if(gradients, "fp16", 2.0**15).overflow == 0


def test_the_ratio_of_2048(paper: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    paper.report_update_ratio(0)
    shares = [float(s) for s in re.findall(r"([\d.]+)% absorbed", capsys.readouterr().out)]
    assert shares[:2] == [0.0, 0.0]
    assert 0.0 < shares[2] < shares[3] < shares[4] < 100.0


def test_half_weights_absorb_and_fall_behind(paper: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    paper.report_updates(6, 5e-3, 0)
    absorbed = re.search(r"([\d.]+)% of the updates", capsys.readouterr().out)
    assert absorbed is not None
    assert float(absorbed.group(1)) > 80.0


def test_sums_in_half_lose_more_the_longer_they_are(
    paper: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    paper.report_accumulation(0)
    errors = re.findall(
        r"error ([\d.e+-]+) with float16 partial sums, ([\d.e+-]+) with", capsys.readouterr().out
    )
    in_half = [float(a) for a, _ in errors]
    in_float = [float(b) for _, b in errors]
    assert in_half == sorted(in_half)
    assert in_half[-1] > 100 * in_float[-1]
