"""StatsRows as the recorder uses it."""

from __future__ import annotations

import pytest
import torch

from ampscope.numerics.histogram import exponent_histogram
from ampscope.numerics.rows import StatsRows, dtype_name


def test_reads_until_full_and_starts_anew() -> None:
    rows = StatsRows("cpu", 2)
    assert rows.read(torch.ones(3), "a")
    assert rows.read(torch.zeros(2), ("b", 1))
    assert not rows.read(torch.ones(1), "c")
    assert len(rows) == 2
    pending = rows.drain()
    assert len(rows) == 0
    assert rows.read(torch.ones(1), "c")
    assert pending.ready()
    assert [tag for tag, _ in pending.result()] == ["a", ("b", 1)]
    assert pending.result() is pending.result()
    assert [tag for tag, _ in rows.drain().result()] == ["c"]
    assert rows.drain().result() == []


def test_a_cpu_read_sees_the_values_of_its_moment() -> None:
    rows, x = StatsRows(torch.device("cpu"), 4), torch.ones(5)
    rows.read(x, 0)
    x.zero_()
    rows.read(x, 1)
    (_, before), (_, after) = rows.drain().result()
    assert (before.zeros, after.zeros) == (0, 5)
    assert before == exponent_histogram(torch.ones(5))


def test_read_many_takes_what_fits() -> None:
    rows = StatsRows("cpu", 3)
    assert rows.read_many((torch.ones(i), i) for i in range(5)) == 3
    assert rows.read_many([(torch.ones(1), 9)]) == 0


def test_room_for_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one tensor"):
        StatsRows("cpu", 0)


def test_dtype_names() -> None:
    assert dtype_name(torch.float8_e4m3fn) == "float8_e4m3fn"
