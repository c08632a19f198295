from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from tests.support.recording import amp_training, batch, mlp, record, rows


def test_policy_and_tracker_are_read_after_update(tmp_path: Path) -> None:
    trace = record(tmp_path, lambda: amp_training(4, growth_interval=2, init_scale=1024.0))
    scaler = rows(trace, "SELECT * FROM scaler ORDER BY step")
    assert [r["scale"] for r in scaler] == [1024.0, 1024.0, 2048.0, 2048.0]
    assert [r["scale_after"] for r in scaler] == [1024.0, 2048.0, 2048.0, 4096.0]
    assert [r["growth_tracker"] for r in scaler] == [1, 0, 1, 0]
    assert {r["found_inf"] for r in scaler} == {False}
    assert {(r["growth_factor"], r["backoff_factor"], r["growth_interval"]) for r in scaler} == {
        (2.0, 0.5, 2)
    }


@pytest.mark.parametrize("fused", [False, True])
def test_a_skip_is_seen_and_blamed(tmp_path: Path, fused: bool) -> None:
    def train() -> None:
        model = mlp()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=fused)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
        for bad in (False, True, False):
            x, y = batch()
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            scaler.scale(loss * float("inf") if bad else loss).backward()
            scaler.step(optimizer)
            scaler.update()

    trace = record(tmp_path, train)
    steps = rows(trace, "SELECT outcome, skipped FROM steps ORDER BY step")
    assert [r["outcome"] for r in steps] == ["stepped", "skipped", "stepped"]
    assert (
        rows(trace, "SELECT detail FROM calls WHERE call='scaler.step' ORDER BY seq")[1]["detail"]
        == "skipped"
    )
    blamed = rows(trace, "SELECT name, role, step, scale FROM nonfinite WHERE role='grad' ORDER BY \"order\"")
    assert {r["step"] for r in blamed} == {1}
    assert blamed[0]["name"].startswith("2."), "the parameter nearest the loss comes first"
    assert {r["scale"] for r in blamed} == {2.0}


def test_a_crash_of_the_scaler_is_in_the_trace(tmp_path: Path) -> None:
    def train() -> None:
        model = mlp().half()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu")
        scaler.scale(model(torch.randn(4, 8).half()).sum()).backward()
        scaler.step(optimizer)

    with pytest.raises(ValueError, match="unscale FP16"):
        record(tmp_path, train)
    from ampscope.trace.reader import open_trace

    trace = open_trace(tmp_path / "run")
    calls = rows(trace, "SELECT call, error FROM calls WHERE error IS NOT NULL ORDER BY seq")
    assert calls == [
        {"call": "scaler.step", "error": "ValueError"},
        {"call": "scaler.unscale_", "error": "ValueError"},
    ]
    events = rows(trace, "SELECT subject, file FROM events WHERE event='exception'")
    assert events[0]["subject"] == "ValueError"
    assert events[0]["file"].endswith("test_scaler.py")
    assert rows(trace, "SELECT DISTINCT dtype FROM params") == [{"dtype": "float16"}]


def test_a_disabled_scaler_is_no_scaler(tmp_path: Path) -> None:
    trace = record(tmp_path, lambda: amp_training(2, enabled=False))
    assert rows(trace, "SELECT * FROM scaler") == []
    assert [r["scale"] for r in rows(trace, "SELECT scale FROM steps")] == [None, None]


def test_unscale_and_clip_stages(tmp_path: Path) -> None:
    trace = record(tmp_path, lambda: amp_training(1, clip=True))
    stages = rows(
        trace,
        "SELECT name, stage, scaled, scale, amax FROM tensors WHERE role='grad' AND name='2.weight' ORDER BY stage",
    )
    assert [(r["stage"], r["scaled"], r["scale"]) for r in stages] == [
        ("post_clip", False, 1.0),
        ("pre_unscale", True, 65536.0),
    ]
