from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ampscope.hooks import watch as watch_module
from ampscope.hooks.oprow import Row
from ampscope.hooks.watch import CONTEXT, TRANSITIONS, Watch
from tests.support.opview import mode_stack, watching

HALF = torch.float16


def watched(function: Callable[[], Any], model: nn.Module | None = None) -> tuple[Watch, list[Row]]:
    with watching(model) as view:
        watch = Watch(view)
        assert watch.start()
        try:
            function()
        finally:
            rows = watch.stop()
    assert watch.failure is None, watch.failure
    assert mode_stack() == []
    return watch, rows


def sources(rows: list[Row]) -> list[tuple[str, str | None]]:
    return [(row["op"], row["reached"]) for row in rows if row["out_nonfinite"] and not row["in_nonfinite"]]


class Overflowing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ok = nn.Linear(8, 8)
        self.big = nn.Linear(8, 8, bias=False)
        nn.init.constant_(self.big.weight, 9000.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.big(self.ok(x).abs() + 1.0)
        return out


def test_an_overflowing_layer_is_named_with_its_line_and_its_shadow() -> None:
    model = Overflowing()

    def run() -> None:
        with torch.autocast("cpu", dtype=HALF):
            loss = model(torch.ones(2, 8)).float().mean()
        loss.backward()

    watch, rows = watched(run, model)
    assert watch.caught
    forward = [row for row in rows if row["reached"] == "loss"]
    assert len(forward) == 1
    row = forward[0]
    assert (row["op"], row["module"], row["phase"]) == ("aten::mm", "big", "forward")
    assert row["in_dtypes"] == ["float16", "float16"]
    assert row["in_amax"] == 9000.0
    assert row["shadow_nonfinite"] == 0
    assert row["shadow_amax"] > 65504.0
    assert row["function"].endswith("forward")
    assert rows[0]["seq"] < row["seq"], "with the ops before it"


def test_a_singular_backward_is_named_by_its_forward() -> None:
    class Norm(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.square().sum().sqrt()

    model = Norm()
    w = torch.zeros(3, requires_grad=True)
    watch, rows = watched(lambda: model(w * 1.0).backward(), model)
    assert watch.caught
    (row,) = [row for row in rows if row["reached"]]
    assert (row["op"], row["module"], row["phase"], row["reached"]) == (
        "aten::div",
        "Norm",
        "backward",
        "gradient",
    )


def test_a_healthy_step_with_a_mask_keeps_nothing_and_stays_armed() -> None:
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    mask = torch.full((4, 4), -math.inf).triu(1)

    def run() -> None:
        x = torch.randn(2, 4, 8)
        attention(x, x, x, attn_mask=mask)[0].sum().backward()

    watch, rows = watched(run, attention)
    assert rows == []
    assert not watch.caught


def test_what_is_thrown_away_is_kept_but_does_not_disarm() -> None:
    x = torch.tensor([300.0]).half()
    watch, rows = watched(lambda: torch.where(x > 0, 0.0, x * x))
    assert sources(rows) == [("aten::mul", None)]
    assert not watch.caught


def test_an_op_that_raises_is_kept() -> None:
    scores = torch.ones(2, 2, dtype=HALF)

    def run() -> None:
        with pytest.raises(RuntimeError):
            scores.masked_fill(scores > 0, -1e9)

    watch, rows = watched(run)
    assert rows[-1]["op"] == "aten::masked_fill"
    assert (rows[-1]["error"], rows[-1]["scalars"]) == ("RuntimeError", [-1e9])
    assert not watch.caught


def test_a_batch_that_is_not_finite_is_kept() -> None:
    model = nn.Linear(2, 1)
    batch = torch.tensor([[1.0, math.nan]])
    watch, rows = watched(lambda: model(batch).sum().backward(), model)
    assert watch.caught
    entry = next(row for row in rows if row["in_nonfinite"])
    assert (entry["op"], entry["module"], entry["reached"]) == ("aten::addmm", "Linear", "loss")


def test_an_in_place_op_has_a_shadow_too() -> None:
    x = torch.tensor([300.0]).half()
    _, rows = watched(lambda: x.mul_(x))
    assert (rows[-1]["op"], rows[-1]["shadow_amax"], rows[-1]["shadow_nonfinite"]) == (
        "aten::mul_",
        90000.0,
        0,
    )


def test_the_optimizer_that_ruins_a_weight_is_caught() -> None:
    w = nn.Parameter(torch.ones(4, dtype=HALF))
    optimizer = torch.optim.Adam([w], lr=0.1, foreach=False)

    def run() -> None:
        (w * 1e-4).sum().backward()
        optimizer.step()

    watch, rows = watched(run)
    assert watch.caught
    assert ("aten::addcdiv_", "weight") in sources(rows)


def test_a_loss_can_be_told() -> None:
    with watching() as view:
        watch = Watch(view)
        watch.start()
        loss = torch.log(torch.zeros(2)).sum()
        assert not watch.caught
        watch.loss(loss)
        assert watch.caught
        (row,) = [row for row in watch.stop() if row["reached"]]
    assert row["op"] == "aten::log"
    assert watch.caught, "also after the segment"


def test_the_list_is_bounded() -> None:
    zeros = torch.zeros(2)

    def run() -> None:
        for _ in range(3 * TRANSITIONS):
            (zeros + 1.0).sum()
            torch.log(zeros)

    _, rows = watched(run)
    assert len(sources(rows)) == TRANSITIONS
    assert len(rows) <= TRANSITIONS * (CONTEXT + 1)
    assert len({row["seq"] for row in rows}) == len(rows)


def test_many_short_lived_tensors_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "_PRUNE_AT", 50)
    sizes: list[int] = []
    with watching() as view:
        watch = Watch(view)
        watch.start()
        x = torch.tensor([300.0]).half()
        kept = x * x
        for _ in range(200):
            torch.ones(2) + 1
            sizes.append(len(watch._ops.reader.ids))
        F.relu(kept).float().sum()
        rows = watch.stop()
    assert max(sizes) <= 53
    assert sources(rows) == [("aten::mul", None)], "a source that lives on is still known"


def test_training_is_bit_for_bit_the_same() -> None:
    def train(observed: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.3), nn.Linear(16, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        with watching(model) as view:
            watch = Watch(view)
            for _ in range(3):
                if observed:
                    assert watch.start()
                with torch.autocast("cpu", dtype=HALF):
                    loss = F.cross_entropy(model(torch.randn(6, 8)), torch.randint(4, (6,)))
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                if observed:
                    watch.stop()
        return [*model.state_dict().values(), torch.get_rng_state()]

    for a, b in zip(train(False), train(True), strict=True):
        assert torch.equal(a, b)
