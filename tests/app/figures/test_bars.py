"""Bars: shares add up to one, the unit fits the size, names are text."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from ampscope.app.figures import bars
from ampscope.app.queries import timing
from ampscope.app.queries.source import Source


def test_phases_are_stacked_to_the_step(src: Source) -> None:
    frame = timing.phases(src)
    fig = bars.phases(frame)
    stacked = [t for t in fig.data if t.type == "bar"]
    assert [t.name for t in stacked] == list(bars.PHASE_NAMES.values())
    assert np.sum([t.y for t in stacked], axis=0) == pytest.approx(1e3 * frame["total"].to_numpy())
    assert fig.layout.yaxis.title.text == "ms per step"
    assert fig.data[-1].name == "sampled"


@pytest.mark.parametrize(("seconds", "unit"), [(3.0, "s"), (0.02, "ms"), (4e-5, "µs")])
def test_the_unit_fits(seconds: float, unit: str) -> None:
    fig = bars.ranked(["a"], [seconds], "forward")
    assert fig.layout.xaxis.title.text == f"forward ({unit})"
    assert 1 <= fig.data[0].x[0] < 1000


def test_dtype_shares_of_a_module_add_up() -> None:
    frame = pd.DataFrame(
        {
            "module": ["a", "a", "b", "c"],
            "dtype": ["float16", "float32", "float32", "float16"],
            "host_s": [3, 1, 5, 0],
        }
    )
    fig = bars.dtype_shares(frame, ["b", "a", "c"], "host_s")
    shares = {t.name: list(t.x) for t in fig.data}
    assert shares == {"float16": [0.0, 75.0, 0.0], "float32": [100.0, 25.0, 0.0]}
    assert [t.name for t in fig.data] == ["float16", "float32"]


def test_names_cannot_carry_markup() -> None:
    fig = bars.ranked(["<i>x</i>"], [1.0], "forward")
    assert fig.layout.yaxis.ticktext == ("&lt;i&gt;x&lt;/i&gt;",)
    assert fig.data[0].customdata[0][0] == "&lt;i&gt;x&lt;/i&gt;"


def test_a_few_tall_bars_do_not_flatten_the_rest() -> None:
    steps = np.arange(40)
    total = np.where(steps == 0, 4.0, 0.01)
    zero = dict.fromkeys(("data", "backward", "unscale", "optimizer", "rest"), 0.0)
    frame = pd.DataFrame(
        {"step": steps, "last": steps, "forward": total, "total": total, "sampled": False, **zero}
    )
    fig = bars.phases(frame)
    assert fig.layout.yaxis.range[1] < 20  # milliseconds
    beyond = next(t for t in fig.data if t.name == "taller")
    assert (list(beyond.x), beyond.customdata[0][1]) == ([0.0], "4 s")


def test_all_bars_are_shown_whole_where_none_dwarfs_the_rest() -> None:
    steps = np.arange(40)
    total = 0.01 + 0.001 * (steps % 5)
    zero = dict.fromkeys(("data", "backward", "unscale", "optimizer", "rest"), 0.0)
    frame = pd.DataFrame(
        {"step": steps, "last": steps, "forward": total, "total": total, "sampled": False, **zero}
    )
    fig = bars.phases(frame)
    assert fig.layout.yaxis.range[1] >= 14
    assert "taller" not in {t.name for t in fig.data}
