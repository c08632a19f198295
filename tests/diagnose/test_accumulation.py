from __future__ import annotations

from pathlib import Path

import pytest

from ampscope.diagnose.accumulation import backwards_between, between, opened_iteration, stream_of
from ampscope.diagnose.signals import Signals
from ampscope.trace.reader import open_trace
from tests.diagnose.handmade import Row, call, write


def calls(*names: str) -> list[Row]:
    full = {
        "unscale": "scaler.unscale_", "step": "scaler.step", "update": "scaler.update", "zero": "optimizer.zero_grad",
        "backward": "backward",
    }  # fmt: skip
    columns: dict[str, Row] = {"zero": {"object": "A"}, "backward": {"target": "A", "n_params": 1}}
    other: Row = {"object": "S", "target": "A"}
    return [call(i, full[n], **columns.get(n, other)) for i, n in enumerate(names)]


@pytest.mark.parametrize(
    ("names", "opened"),
    [
        # gradients cleared before the next backward: another iteration
        (("zero", "backward", "unscale", "zero", "backward", "unscale"), True),
        # nothing cleared and no history: one accumulation window
        (("zero", "backward", "unscale", "backward", "unscale"), False),
        # windows of one backward came before: this is the next iteration
        (("backward", "unscale", "step", "update", "backward", "unscale", "backward", "unscale"), True),
        # windows of two backwards came before: this is the second of one window
        (
            (
                "backward",
                "backward",
                "unscale",
                "step",
                "update",
                "backward",
                "unscale",
                "backward",
                "unscale",
            ),
            False,
        ),
        # no backward at all in between
        (("backward", "unscale", "unscale"), False),
    ],
)
def test_a_lost_update_is_told_from_an_accumulation_window(
    tmp_path: Path, names: tuple[str, ...], opened: bool
) -> None:
    with open_trace(write(tmp_path, {"calls": calls(*names)})) as trace:
        s = Signals(trace)
        (breach,) = s.breaches
        assert opened_iteration(s, breach) is opened
        assert backwards_between(s, breach) == sum(c.call == "backward" for c in between(s, breach))
        assert breach.call in stream_of(s, breach.call)
