from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from ampscope.trace.liveness import Identity
from ampscope.trace.records import DeviceInfo, ProcessInfo, RunInfo, build


def test_a_record_comes_back_from_json() -> None:
    run = RunInfo(
        version="0.1.0",
        command=("train.py", "--lr", "1e-3"),
        cwd="/work",
        end="2026-11-29T11:02:04.000Z",
        exit_status=None,
        exit_signal=9,
        settings={"level": "range", "every": None},
    )
    again = build(RunInfo, json.loads(json.dumps(asdict(run))))
    assert again == run


def test_foreign_keys_and_wrong_types_cost_their_field_only() -> None:
    raw = {
        "rank": "1",
        "proc": 2,
        "pid": True,
        "torch": ["2.13"],
        "bf16_native": 1,
        "num_threads": 8,
        "end": 5,
        "versions": {"numpy": "2.0"},
        "from_the_future": 1,
    }
    assert build(ProcessInfo, raw) == ProcessInfo(proc=2, num_threads=8, versions={"numpy": "2.0"})


@pytest.mark.parametrize("raw", [None, [], "x", 3])
def test_no_object_gives_the_blank_record(raw: object) -> None:
    assert build(DeviceInfo, raw) == DeviceInfo()
    assert build(Identity, raw) == Identity()
