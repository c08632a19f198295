"""One process of a run: tables are restricted to it, results are kept until the trace changes."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pandas as pd
import pytest

from ampscope.app.queries import source
from ampscope.app.queries.source import Cache, Source


class Counting:
    """A trace that counts its queries."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def sql(self, query: str, params: Any = None) -> pd.DataFrame:
        self.asked.append(query)
        return pd.DataFrame({"x": [len(self.asked)]})


def test_tables_are_restricted_to_the_process() -> None:
    trace = Counting()
    Source(Cache(trace), rank=3, proc=1).frame("SELECT count(*) FROM {steps} JOIN {ops} USING (step)")
    assert "(SELECT * FROM steps WHERE rank = 3 AND proc = 1)" in trace.asked[0]
    assert "(SELECT * FROM ops WHERE rank = 3 AND proc = 1)" in trace.asked[0]


def test_a_result_is_asked_for_once() -> None:
    trace = Counting()
    src = Source(Cache(trace))
    assert src.value("SELECT ?", 1) == src.value("SELECT ?", 1) == 1
    assert src.value("SELECT ?", 2) == 2
    assert len(trace.asked) == 2


def test_the_same_question_at_once_is_asked_once_and_another_does_not_wait() -> None:
    started, release = threading.Event(), threading.Event()

    class Slow(Counting):
        def sql(self, query: str, params: Any = None) -> pd.DataFrame:
            answer = super().sql(query, params)
            if query == "slow":
                started.set()
                assert release.wait(10)
            return answer

    trace = Slow()
    src = Source(Cache(trace))
    with ThreadPoolExecutor(3) as pool:
        one = pool.submit(src.value, "slow")
        assert started.wait(10)
        two = pool.submit(src.value, "slow")
        assert pool.submit(src.value, "fast").result(10) == 2
        release.set()
        assert one.result(10) == two.result(10) == 1
    assert trace.asked == ["slow", "fast"]


def test_what_was_asked_before_a_change_is_not_kept_after_it() -> None:
    class Changing(Counting):
        def sql(self, query: str, params: Any = None) -> pd.DataFrame:
            answer = super().sql(query, params)
            if len(self.asked) == 1:
                cache.clear()
            return answer

    trace = Changing()
    cache = Cache(trace)
    src = Source(cache)
    assert [src.value("x"), src.value("x"), src.value("x")] == [1, 2, 2]


def test_a_failed_query_is_asked_again() -> None:
    class Failing(Counting):
        def sql(self, query: str, params: Any = None) -> pd.DataFrame:
            answer = super().sql(query, params)
            if len(self.asked) == 1:
                raise ValueError("the disk is gone")
            return answer

    src = Source(Cache(Failing()))
    with pytest.raises(ValueError, match="the disk is gone"):
        src.value("x")
    assert src.value("x") == 2


def test_a_cleared_cache_asks_again() -> None:
    trace = Counting()
    cache = Cache(trace)
    Source(cache).value("SELECT 1")
    cache.clear()
    assert Source(cache).value("SELECT 1") == 2


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "KEEP", 2)
    trace = Counting()
    src = Source(Cache(trace))
    for n in (1, 2, 1, 3, 1):
        src.value("SELECT ?", n)
    assert len(trace.asked) == 3
    src.value("SELECT ?", 2)
    assert len(trace.asked) == 4


def test_a_large_result_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "KEEP_BYTES", 4)
    trace = Counting()
    src = Source(Cache(trace))
    src.value("SELECT 1")
    src.value("SELECT 1")
    assert len(trace.asked) == 2


def test_null_and_no_row_are_none(src: Source) -> None:
    assert src.value("SELECT NULL") is None
    assert src.value("SELECT step FROM {steps} WHERE step < 0") is None
    assert src.value("SELECT max(step) FROM {steps}") == 39
