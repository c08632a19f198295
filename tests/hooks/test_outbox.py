from __future__ import annotations

from ampscope.hooks.clock import Row, Segment
from ampscope.hooks.deferred import DeferredScalars
from ampscope.hooks.outbox import WAITING, Outbox


class Reads:
    """Values that arrive when they are told to."""

    def __init__(self, row: Row, arrived: bool = False) -> None:
        self.row = row
        self.arrived = arrived

    def ready(self) -> bool:
        return self.arrived

    def deliver(self) -> None:
        self.row["value"] = 1.0


def segment(index: int, *reads: Reads) -> Segment:
    made = Segment(index, 0.0, reads=list(reads))
    made.rows.append(("steps", {"segment": index}))
    return made


def make() -> tuple[Outbox, list[int]]:
    pushed: list[int] = []
    return Outbox(DeferredScalars(), lambda rows: pushed.append(rows[0][1]["segment"])), pushed


def test_segments_go_in_order_once_their_values_are_there() -> None:
    outbox, pushed = make()
    late = Reads({})
    outbox.add(segment(0, late))
    outbox.add(segment(1))
    outbox.flush(wait=False)
    assert pushed == []
    late.arrived = True
    outbox.flush(wait=False)
    assert pushed == [0, 1]
    assert late.row == {"value": 1.0}


def test_the_last_segment_is_held_until_the_scaler_has_updated() -> None:
    outbox, pushed = make()
    outbox.hold = True
    outbox.add(segment(0))
    outbox.flush(wait=False)
    assert pushed == []
    outbox.add(segment(1))
    outbox.flush(wait=False)
    assert pushed == [0]
    outbox.hold = False
    outbox.flush(wait=False)
    assert pushed == [0, 1]


def test_at_the_end_nothing_stays_behind() -> None:
    outbox, pushed = make()
    outbox.hold = True
    outbox.add(segment(0, Reads({})))
    outbox.flush(wait=True)
    assert pushed == [0]


def test_a_device_that_falls_behind_does_not_pile_up_segments() -> None:
    outbox, pushed = make()
    for index in range(WAITING + 10):
        outbox.add(segment(index, Reads({})))
        outbox.flush(wait=False)
    assert len(pushed) == 11
