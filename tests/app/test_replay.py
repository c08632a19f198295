"""What the browser replays the loss scale from, and what is said where there is nothing to replay."""

from __future__ import annotations

import json
from pathlib import Path

from ampscope.app import replay
from ampscope.app.callbacks import context_of
from ampscope.app.queries import replay as rounds
from ampscope.app.runs import Context, RunStore
from ampscope.app.state import View
from tests.app import walk
from tests.app.tracekit import RunKit


def context(path: Path) -> Context:
    return context_of(RunStore([path]), View())


def test_it_starts_from_the_recorded_policy(store: RunStore) -> None:
    found = context_of(store, View())
    assert replay.policy(found) == {"init": 65536.0, "growth": 2.0, "backoff": 0.5, "interval": 22.0}
    assert [c.key for c in replay.controls(found)] == ["init", "growth", "backoff", "interval"]


def test_what_is_sent(store: RunStore) -> None:
    found = context_of(store, View())
    sent = replay.data(found, rounds.rounds(found.src))
    json.dumps(sent["rounds"], allow_nan=False)
    assert {len(column) for column in sent["rounds"].values()} == {len(sent["rounds"]["step"])}
    assert sum(sent["rounds"]["n"]) == 40
    assert sent["recorded"] == {"skipped": 3}
    assert sent["format"]["name"] == "fp16"
    for h in sent["histograms"]:
        assert sent["rounds"]["step"][h["row"]] == h["step"]
        assert sent["rounds"]["read"][h["row"]]
        assert 2.0 ** (h["low"] + len(h["counts"]) - 1) <= h["amax"] < 2.0 ** (h["low"] + len(h["counts"]))


def test_a_bfloat16_run_with_a_scaler_overflows_where_bfloat16_does(store: RunStore) -> None:
    found = context_of(store, View.parse("/", "run=second"))
    assert replay.data(found, rounds.rounds(found.src))["format"]["name"] == "bf16"


def test_a_run_without_a_scaler_starts_from_torchs_defaults(tmp_path: Path) -> None:
    kit = RunKit().build()
    del kit.rows["scaler"]
    found = context(kit.write(tmp_path / "r"))
    assert replay.policy(found) == replay.DEFAULTS
    sent = replay.data(found, rounds.rounds(found.src))
    assert sent["recorded"] is None
    assert sent["rounds"]["scale"] == [None] * len(sent["rounds"]["step"])


def test_nothing_to_replay_is_said_and_has_no_controls(tmp_path: Path, store: RunStore) -> None:
    unread = RunKit().build()
    del unread.rows["tensors"]
    cases = {
        "No step was recorded": context_of(store, View.parse("/", "run=bare")),
        "No finite gradient was read": context(unread.write(tmp_path / "unread")),
        "No policy would have helped": context(RunKit(nan_from=0).build().write(tmp_path / "nan")),
    }
    for words, found in cases.items():
        assert words in walk.text(replay.view(found))
        assert replay.controls(found) == []
