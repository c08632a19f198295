"""Updates: observed where the parameter is stored in half precision, predicted elsewhere, never mixed."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from ampscope.app.queries import updates
from ampscope.app.queries.source import Cache, Source
from ampscope.trace.reader import open_trace
from tests.app.tracekit import RunKit


def test_float32_parameters_have_no_observed_share(src: Source) -> None:
    frame = updates.heat(src)
    assert frame["observed"].isna().all()
    assert frame["of_observed"].isna().all()
    assert (frame["fp16"] > 0).all()
    assert len(frame) == 28 * 20


def test_half_parameters_have_one(tmp_path: Path) -> None:
    kit = RunKit()
    kit.add("steps", **kit.key(0), level="range")
    kit.add(
        "updates", **kit.key(0, "optimizer"), name="w", dtype="bfloat16", numel=10, grad_nonzero=8, unchanged=6,
        moved=2, update_norm=1.0, weight_norm=4.0,
    )  # fmt: skip
    trace = open_trace(kit.write(tmp_path / "r"))
    row = updates.table(Source(Cache(trace))).iloc[0]
    trace.close()
    assert (row["observed"], row["of_observed"], row["ratio"]) == (6, 8, 0.25)
    assert pd.isna(row["fp16"])


def test_ratios_are_a_matrix_of_binades(src: Source) -> None:
    found = updates.ratios(src, "head.weight")
    assert found is not None
    assert found.counts.shape[1] == len(found.first) == 20
    assert (found.counts.sum(axis=0) == 4096).all()
    assert updates.ratios(src, "nobody") is None


def test_nothing_recorded(bare: Source) -> None:
    assert updates.heat(bare).empty
    assert updates.table(bare).empty
    assert updates.ratios(bare, "w") is None
