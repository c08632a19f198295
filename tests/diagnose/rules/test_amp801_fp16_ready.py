from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F

from ampscope.diagnose import Diagnosis
from tests.diagnose.judging import classifier, judge, labelled, only, serious


def train(
    path: Path,
    *,
    data: float = 1.0,
    losses: tuple[float, ...] = (1.0,),
    fp16: bool = False,
    spoil: bool = False,
) -> Diagnosis:
    """Several heads, each with a loss of its own size."""

    def run() -> None:
        trunk = torch.nn.Linear(16, 16)
        heads = [classifier(16) for _ in losses]
        optimizer = torch.optim.SGD([p for m in (trunk, *heads) for p in m.parameters()], lr=1e-12)
        scaler = torch.amp.GradScaler("cpu", enabled=fp16, init_scale=256.0)
        for i in range(5):
            x, y = labelled()
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16, enabled=fp16):
                total = torch.zeros(())
                for head, factor in zip(heads, losses, strict=True):
                    total = total + factor * F.cross_entropy(head(trunk(data * x) / data).float(), y)
            scaler.scale(total * (float("nan") if spoil and i == 3 else 1.0)).backward()
            scaler.step(optimizer)
            scaler.update()

    return judge(path, run, every=1)


def test_the_window_of_an_ordinary_run(tmp_path: Path) -> None:
    found = train(tmp_path)
    assert serious(found) == []
    finding = only(found, "AMP801")
    assert "Ready for fp16" in finding.claim
    assert "init_scale=2^" in finding.recommendation


def test_a_forward_value_that_fp16_cannot_hold(tmp_path: Path) -> None:
    finding = only(train(tmp_path, data=1e5), "AMP801")
    assert "Not ready" in finding.claim
    assert "beyond 65504" in finding.claim
    assert finding.where.tensor is not None


def test_gradients_of_two_sizes_close_the_window(tmp_path: Path) -> None:
    finding = only(train(tmp_path, losses=(1e5, 1e-9)), "AMP801")
    assert "Not ready" in finding.claim
    assert "overflows above" in finding.claim


def test_an_fp16_run_is_not_asked(tmp_path: Path) -> None:
    assert "AMP801" in train(tmp_path, fp16=True).coverage.clean


def test_abstains_when_the_run_is_broken(tmp_path: Path) -> None:
    found = train(tmp_path, spoil=True)
    assert "AMP801" in [n.code for n in found.coverage.not_measurable]
