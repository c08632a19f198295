"""The shortcuts of counted steps see what the ordinary hooks see, and leave them what they do not know."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from ampscope.hooks import install, shortcuts
from ampscope.hooks.patches import DECLINED
from tests.hooks.test_counting import EXACT, IDS, LOOPS, only_counts
from tests.support.recording import amp_training, batch, mlp, record, rows, seeded

CALLS = (
    "call, object, target, value, scaled, enabled, detail, dtype, micro, phase, n_params, "
    "CAST(params AS VARCHAR) AS names, error"
)


@pytest.fixture(autouse=True)
def frugal(monkeypatch: pytest.MonkeyPatch) -> None:
    only_counts(monkeypatch)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[bool]]:
    """By the name of the first half of each shortcut: of each call, whether it was taken."""
    seen: dict[str, list[bool]] = {}
    for name in ("scale", "unscale", "step", "update", "backward", "optimizer"):
        method = getattr(shortcuts.Shortcuts, f"_before_{name}")

        def spied(self: Any, *args: Any, method: Any = method, name: str = name) -> Any:
            token = method(self, *args)
            seen.setdefault(name, []).append(token is not DECLINED)
            return token

        monkeypatch.setattr(shortcuts.Shortcuts, f"_before_{name}", spied)
    return seen


def everything(trace: Any) -> tuple[Any, ...]:
    return (
        rows(trace, f"SELECT {EXACT} FROM steps WHERE outcome <> 'ended' ORDER BY segment"),
        rows(trace, "SELECT * EXCLUDE (step, opt_step) FROM scaler ORDER BY segment, scaler, opt"),
        rows(trace, f"SELECT segment, {CALLS} FROM calls WHERE segment > 40 ORDER BY seq"),
    )


@pytest.mark.parametrize("train", LOOPS, ids=IDS)
def test_they_tell_what_the_hooks_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: Any, train: Callable[[], None]
) -> None:
    short = record(tmp_path / "short", seeded(train), level="pulse")
    assert all(sum(calls) > 50 for calls in taken.values()), {k: sum(v) for k, v in taken.items()}
    monkeypatch.setattr(shortcuts.Shortcuts, "ready", False)
    taken.clear()
    long = record(tmp_path / "long", seeded(train), level="pulse")
    assert taken == {}
    assert everything(short) == everything(long)


class Onlooker(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def counted(step: Callable[[], None], until: int = 80) -> None:
    """Run steps until one is counted, and `until` is reached."""
    session = install.current()
    assert session is not None
    while session.segment.index < until or session.segment.level != "count":
        step()


def test_two_losses_a_list_and_a_function_mode_are_left_to_the_hooks(tmp_path: Path, taken: Any) -> None:
    def train() -> None:
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
        kind = 0

        def step() -> None:
            x, y = batch()
            optimizer.zero_grad()
            losses = [nn.functional.cross_entropy(model(x), y), model(x).square().mean()]
            if kind == 0:
                scaler.scale(losses[0]).backward()
            elif kind == 1:
                first, second = scaler.scale(losses)
                torch.autograd.backward([first, second])
            elif kind == 2:
                (scaler.scale(losses[0]) + scaler.scale(losses[1])).backward()
            else:
                with Onlooker():
                    scaler.scale(losses[0]).backward()
            scaler.step(optimizer)
            scaler.update()

        counted(step)
        for kind, left in ((1, "backward"), (2, "backward"), (3, "scale")):
            counted(step)
            taken.clear()
            step()
            assert not any(taken[left]), kind
            assert all(taken["step"])

    trace = record(tmp_path, train)
    losses = rows(trace, "SELECT loss, n_backward FROM steps WHERE level = 'count'")
    assert all(row["loss"] is not None and 0.0 < row["loss"] < 10.0 for row in losses)
    assert {row["n_backward"] for row in losses} == {1}


def test_one_that_fails_leaves_the_work_to_the_hooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Any, args: Any, kwargs: Any) -> Any:
        raise RuntimeError("broken")

    monkeypatch.setattr(shortcuts.Shortcuts, "_before_backward", broken)
    trace = record(tmp_path, lambda: amp_training(200), strict=False)
    (event,) = rows(trace, "SELECT subject, message FROM events WHERE event = 'collector_error'")
    assert event["subject"] == "shortcuts"
    assert "broken" in event["message"]
    seen = rows(trace, "SELECT count(loss) AS losses, count(*) AS n FROM steps WHERE outcome = 'stepped'")
    assert seen == [{"losses": 200, "n": 200}]


def test_what_fails_after_the_original_costs_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Any, token: Any, result: Any, error: BaseException | None) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(shortcuts.Shortcuts, "_after_scale", broken)
    trace = record(tmp_path, lambda: amp_training(200), strict=False)
    assert rows(trace, "SELECT subject FROM events WHERE event = 'collector_error'") == [
        {"subject": "shortcuts"}
    ]
    assert rows(trace, "SELECT count(*) AS n FROM steps WHERE outcome = 'stepped'") == [{"n": 200}]


def test_their_time_is_booked(tmp_path: Path) -> None:
    trace = record(tmp_path, lambda: amp_training(200))
    assert rows(trace, "SELECT count(*) AS n FROM steps WHERE level = 'count' AND own_s <= 0") == [{"n": 0}]
