from __future__ import annotations

import time

import pytest

from ampscope.hooks.clock import Row, Segment
from ampscope.hooks.deferred import DeferredScalars
from ampscope.hooks.outbox import BATCH, BATCH_SECONDS, WAITING, Outbox


class Reads:
    """Values that arrive when they are told to."""

    def __init__(self, row: Row, arrived: bool = False) -> None:
        self.row = row
        self.arrived = arrived

    def ready(self) -> bool:
        return self.arrived

    def deliver(self) -> None:
        self.row["value"] = 1.0


def segment(index: int, *reads: Reads, level: str = "pulse") -> Segment:
    return Segment(index, 0.0, level=level, reads=list(reads), ended=time.perf_counter())


def make() -> tuple[Outbox, list[int]]:
    sent: list[int] = []
    return Outbox(DeferredScalars(), lambda segments: sent.extend(s.index for s in segments)), sent


def test_segments_go_in_order_once_their_values_are_there() -> None:
    outbox, sent = make()
    late = Reads({})
    outbox.add(segment(0, late))
    outbox.add(segment(1))
    outbox.flush(wait=False)
    assert sent == []
    late.arrived = True
    outbox.flush(wait=False)
    assert sent == [0, 1]
    assert late.row == {"value": 1.0}


def test_the_last_segment_is_held_until_the_scaler_has_updated() -> None:
    outbox, sent = make()
    outbox.hold = True
    outbox.add(segment(0))
    outbox.flush(wait=False)
    assert sent == []
    outbox.add(segment(1))
    outbox.flush(wait=False)
    assert sent == [0]
    outbox.hold = False
    outbox.flush(wait=False)
    assert sent == [0, 1]


def test_at_the_end_nothing_stays_behind() -> None:
    outbox, sent = make()
    outbox.hold = True
    outbox.add(segment(0, Reads({})))
    outbox.flush(wait=True)
    assert sent == [0]


def test_a_device_that_falls_behind_does_not_pile_up_segments() -> None:
    outbox, sent = make()
    for index in range(WAITING + 10):
        outbox.add(segment(index, Reads({})))
        outbox.flush(wait=False)
    assert len(sent) == 11


def test_counted_segments_go_together() -> None:
    outbox, sent = make()
    for index in range(BATCH):
        assert sent == []
        outbox.add(segment(index, level="count"))
        outbox.flush(wait=False)
    assert sent == list(range(BATCH))


def test_a_counted_segment_does_not_wait_for_long() -> None:
    outbox, sent = make()
    lonely = segment(0, level="count")
    outbox.add(lonely)
    outbox.flush(wait=False)
    assert sent == []
    lonely.ended -= BATCH_SECONDS
    outbox.flush(wait=False)
    assert sent == [0]


def test_a_read_that_fails_takes_no_other_segment_along() -> None:
    class Broken(Reads):
        def deliver(self) -> None:
            raise RuntimeError("no such event")

    outbox, sent = make()
    outbox.add(segment(0))
    outbox.add(segment(1, Broken({}, arrived=True)))
    with pytest.raises(RuntimeError):
        outbox.flush(wait=False)
    assert sent == [0]
