from __future__ import annotations

import time
from pathlib import Path

from tests.support.recording import amp_training, record, rows


def test_every_collector_has_its_books_and_they_add_up(tmp_path: Path) -> None:
    began = time.perf_counter()
    trace = record(tmp_path, lambda: amp_training(4))
    wall = time.perf_counter() - began
    booked = {
        r["collector"]: r
        for r in rows(trace, "SELECT collector, sum(host_s) AS s, sum(calls) AS n FROM ledger GROUP BY 1")
    }
    assert {"ranges", "scaler", "modules", "backward", "api_calls", "census", "updates"} <= set(booked)
    assert booked["ranges"]["s"] > 0.0
    own = rows(trace, "SELECT sum(own_s) AS own FROM steps")[0]["own"]
    total = sum(r["s"] for r in booked.values())
    assert 0.0 < total <= wall
    assert total >= 0.5 * own, "the books cover what the steps say was spent"


def test_the_choice_of_the_budget_is_explained(tmp_path: Path) -> None:
    trace = record(tmp_path, lambda: amp_training(3))
    why = {r["why"] for r in rows(trace, "SELECT DISTINCT why FROM ledger")}
    assert "census: scheduled" in why
