from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from ampscope.diagnose.opflow import Op
from ampscope.diagnose.origins import Kind, classify, origins_of
from ampscope.diagnose.signals import Signals
from tests.diagnose.opkit import flow, op
from tests.support.recording import record

BAD = {"out_nonfinite": 2}


def kind(*ops: Op) -> Kind:
    return classify(flow(*ops), ops[-1])[0]


@pytest.mark.parametrize(
    ("name", "facts", "expected"),
    [
        ("addmm", {}, Kind.MATMUL),
        ("sum", {}, Kind.REDUCTION),
        ("add", {}, Kind.ELEMENTWISE),
        ("mul_", {"scalars": (1e5,)}, Kind.ELEMENTWISE),
        ("mul", {"scalars": (-1e9,)}, Kind.MASK),
        ("exp", {}, Kind.EXP),
        ("sqrt", {"in_amin": -3.0, "out_nan": 2}, Kind.SINGULAR),
        ("log", {"in_zeros": 1}, Kind.SINGULAR),
        ("div", {"in_zeros": 3, "out_nan": 2}, Kind.SINGULAR),
        ("div", {"shadow_nonfinite": 0}, Kind.ELEMENTWISE),
        ("_to_copy", {"in_dtypes": ("float32",), "in_amax": 9e4}, Kind.CAST),
        ("mm", {"phase": "backward"}, Kind.GRADIENT),
        ("_to_copy", {"phase": "backward", "in_dtypes": ("float32",), "in_amax": 9e4}, Kind.GRADIENT),
        ("upsample", {}, Kind.OTHER),
    ],
)
def test_kinds(name: str, facts: dict[str, object], expected: Kind) -> None:
    assert kind(op(0, name, (1,), (2,), **{**BAD, **facts})) is expected


def test_float32_that_overflows_as_well_has_no_part_of_precision() -> None:
    wide = op(0, "mul", (1,), (2,), shadow_nonfinite=2, **BAD)
    narrow = op(0, "mul", (1,), (2,), shadow_nonfinite=0, **BAD)

    assert [classify(flow(o), o)[2] for o in (wide, narrow)] == [False, True]


def test_the_power_of_an_exponential() -> None:
    assert kind(op(0, "exp", (1,), (2,)), op(1, "pow", (2,), (3,), scalars=(2.0,), **BAD)) is Kind.EXP
    assert kind(op(0, "mm", (1,), (2,)), op(1, "pow", (2,), (3,), scalars=(2.0,), **BAD)) is Kind.REDUCTION


def test_a_slope_of_bce_is_a_saturated_probability() -> None:
    slope = op(
        0, "binary_cross_entropy_backward", (1, 2, 3), (4,), phase="backward", in_amax=128.0, out_amax=4e12
    )
    cast = op(1, "_to_copy", (4,), (5,), phase="backward", in_dtypes=("float32",), in_amax=4e12, **BAD)

    assert kind(slope, cast) is Kind.SATURATED


def train(overflow: bool, used: bool, steps: int = 3) -> None:
    torch.manual_seed(0)
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for _ in range(steps):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            out = model(torch.randn(16, 8))
            large = (out + 300.0) * (out + 300.0)
            loss = (large if overflow and used else out).float().square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def test_an_origin_is_what_reached_the_loss(tmp_path: Path) -> None:
    with record(tmp_path / "used", lambda: train(True, True)) as trace:
        found = origins_of(Signals(trace))
    with record(tmp_path / "unused", lambda: train(True, False)) as trace:
        assert origins_of(Signals(trace)) == ()

    assert {o.kind for o in found} == {Kind.ELEMENTWISE}
    assert all(o.forward and o.precision for o in found)
    assert [o.trouble.key for o in found] == sorted(o.trouble.key for o in found)
