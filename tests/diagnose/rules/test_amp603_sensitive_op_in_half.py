from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from ampscope.diagnose import Diagnosis
from ampscope.trace.reader import open_trace
from tests.diagnose.handmade import op, step, write
from tests.diagnose.judging import checked, half, judge, labelled, only, serious


def train(path: Path, stored: torch.dtype, *, upcast: bool) -> Diagnosis:
    def run() -> None:
        model = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 4)).to(stored)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        for _ in range(3):
            x, y = labelled()
            optimizer.zero_grad()
            with half(torch.bfloat16) if stored == torch.float32 else torch.enable_grad():
                logits = model(x.to(stored))
            F.cross_entropy(logits.float() if upcast else logits, y).backward()
            optimizer.step()

    return judge(path, run)


def test_a_model_in_half_normalises_in_half(tmp_path: Path) -> None:
    found = train(tmp_path, torch.bfloat16, upcast=False)
    finding = only(found, "AMP603")
    assert serious(found) == []
    assert finding.severity == "info"
    assert "layer_norm" in finding.claim
    assert "log_softmax" in finding.claim


def test_what_autocast_decides_is_not_blamed(tmp_path: Path) -> None:
    assert "AMP603" not in train(tmp_path, torch.float32, upcast=True).coverage.fired


def test_a_result_that_float32_contradicts_is_a_warning(tmp_path: Path) -> None:
    rows = [
        op(
            0,
            0,
            "_softmax",
            "float16",
            shadow_sqnr_db=12.0,
            out_nonfinite=0,
            in_shapes=["8x8"],
            module="attention",
        ),
        op(0, 1, "mm", "float16"),
    ]
    with open_trace(write(tmp_path, {"steps": [step(0, autocast_dtype="float16")], "ops": rows})) as trace:
        finding = only(checked(trace), "AMP603")
    assert finding.severity == "warning"
    assert "12 dB" in finding.claim
    assert finding.where.module == "attention"


def test_short_reductions_are_fine(tmp_path: Path) -> None:
    rows = [op(0, 0, "mean", "float16", out_nonfinite=0, in_shapes=["64"])]
    with open_trace(write(tmp_path, {"steps": [step(0)], "ops": rows})) as trace:
        assert "AMP603" in checked(trace).coverage.clean
