from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch

from ampscope.hooks import session as session_module
from ampscope.hooks.device_timing import MAX_SPANS, DeviceTimeline
from tests.support.recording import amp_training, record, rows


class HostEvent:
    """Has the methods of torch.cuda.Event that the timeline uses; its stream is the host."""

    made = 0

    def __init__(self) -> None:
        HostEvent.made += 1
        self.at = 0.0
        self.passed = True

    def record(self) -> None:
        self.at = time.perf_counter()

    def query(self) -> bool:
        return self.passed

    def synchronize(self) -> None:
        self.passed = True

    def elapsed_time(self, later: HostEvent) -> float:
        return (later.at - self.at) * 1e3


def test_spans_of_a_phase_add_up_and_events_are_used_again() -> None:
    HostEvent.made = 0
    timeline = DeviceTimeline(HostEvent)
    for _ in range(3):
        row: dict[str, object] = {}
        for _ in range(2):
            timeline.begin("backward")
            timeline.end("backward")
        reads = timeline.close_segment(row)
        assert reads is not None
        assert reads.ready()
        reads.deliver()
        value = row["backward_device_s"]
        assert isinstance(value, float)
        assert value >= 0.0
        assert set(row) == {"backward_device_s"}
    assert HostEvent.made == 4


def test_nothing_is_read_before_its_event_has_passed() -> None:
    timeline = DeviceTimeline(HostEvent)
    timeline.begin("forward")
    timeline.end("forward")
    reads = timeline.close_segment({})
    assert reads is not None
    next(iter(reads._spans["forward"]))[1].passed = False
    assert not reads.ready()


def test_an_endless_accumulation_is_bounded() -> None:
    HostEvent.made = 0
    timeline = DeviceTimeline(HostEvent)
    for _ in range(10 * MAX_SPANS):
        timeline.begin("forward")
        timeline.end("forward")
    assert timeline.close_segment({}) is None
    assert HostEvent.made <= 2 * MAX_SPANS + 2


def test_unfinished_spans_are_dropped() -> None:
    timeline = DeviceTimeline(HostEvent)
    timeline.begin("optimizer")
    assert timeline.close_segment({}) is None
    timeline.end("optimizer")
    assert timeline.close_segment({}) is None


def test_the_phases_of_a_run_are_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def timeline(session: session_module.Session, device: str) -> None:
        if session.timeline is None:
            session.timeline = DeviceTimeline(HostEvent)

    monkeypatch.setattr(session_module.Session, "device_seen", timeline)
    trace = record(tmp_path, lambda: amp_training(3, init_scale=4.0))
    for row in rows(trace, "SELECT * FROM steps"):
        for phase in ("forward", "backward", "optimizer"):
            assert row[f"{phase}_device_s"] == pytest.approx(row[f"{phase}_s"], rel=0.9, abs=2e-2)


def test_without_cuda_there_is_no_device_time(tmp_path: Path) -> None:
    trace = record(tmp_path, lambda: amp_training(1))
    if not torch.cuda.is_available():
        assert rows(trace, "SELECT forward_device_s FROM steps") == [{"forward_device_s": None}]
