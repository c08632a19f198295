from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from ampscope.diagnose.scales import ScalePath, Update, paths_of
from ampscope.trace.reader import open_trace
from tests.diagnose.handmade import scaler, write


def path(*found: bool, scale: float = 1024.0, interval: int = 3) -> ScalePath:
    """What a scaler with these found_inf does, by the rule of torch.amp.GradScaler."""
    updates, good = [], 0
    for step, bad in enumerate(found):
        good = 0 if bad else good + 1
        after = scale / 2 if bad else scale * 2 if good == interval else scale
        good = 0 if after > scale else good
        updates.append(Update(step, step, scale, after, bad, ("A",) if bad else (), ("A",)))
        scale = after
    return ScalePath(0, 0, "S", tuple(updates), 1024.0, 2.0, 0.5, interval)


def test_leading_search_and_where_it_settles() -> None:
    p = path(True, True, False, False, True)
    assert p.leading_skips == 2
    assert p.settled_scale == 256.0
    assert len(p.settled) == 3


def test_nothing_settles_when_all_is_skipped() -> None:
    p = path(True, True)
    assert p.settled == ()
    assert p.settled_scale is None
    assert p.deepest_fall == (1024.0, 256.0, 0)


def test_a_skip_after_growth_answers_it() -> None:
    p = path(False, False, False, True, False, False, False, True)
    assert p.growths == [2, 6]
    assert p.after_growth(2) == [3, 7]
    assert p.unexplained_skips(2) == []


def test_skips_without_growth_are_unexplained() -> None:
    p = path(False, False, True, False, True)
    assert p.unexplained_skips(2) == [2, 4]


def test_the_deepest_fall_starts_anew_after_growth() -> None:
    p = path(False, True, True, False, False, False, True, False)
    assert p.deepest_fall == (1024.0, 256.0, 1)


@given(st.lists(st.booleans(), min_size=1, max_size=60))
def test_every_skip_is_in_one_class(found: list[bool]) -> None:
    p = path(*found, interval=4)
    leading = set(range(p.leading_skips))
    unexplained = set(p.unexplained_skips(2))
    assert not leading & unexplained
    assert leading | unexplained <= {i for i, bad in enumerate(found) if bad}
    top, low, _ = p.deepest_fall
    assert low <= top


def test_rows_of_one_update_are_one_update(tmp_path: Path) -> None:
    rows = [
        scaler(0, 64.0, 32.0, True, opt="A", growth_tracker=0),
        scaler(1, 64.0, 32.0, False, opt="B", growth_tracker=0),
        scaler(2, 32.0, 32.0, False, opt="A", growth_tracker=1),
        scaler(3, 32.0, 32.0, False, opt="B", growth_tracker=1),
        scaler(4, 32.0, None, False, opt="A"),
    ]
    with open_trace(write(tmp_path, {"scaler": rows})) as trace:
        (found,) = paths_of(trace.sql("SELECT * FROM scaler ORDER BY segment"))
    assert [u.opts for u in found.updates] == [("A", "B"), ("A", "B"), ("A",)]
    assert found.updates[0].overflowed == ("A",)
    assert found.final_scale == 32.0
    assert found.growth_interval == 2000
