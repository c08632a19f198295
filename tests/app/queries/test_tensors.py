"""Histograms: counts of bands against NumPy, true values, skipped steps left out, long runs thinned in SQL."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ampscope.app.queries import tensors
from ampscope.app.queries.source import Cache, Source
from ampscope.trace.reader import open_trace
from tests.app.tracekit import RunKit, module_names


def one_tensor(path: Path, rows: list[dict[str, object]]) -> Source:
    """A run with the given rows of one gradient, one step each."""
    kit = RunKit()
    for step, row in enumerate(rows):
        kit.add(
            "steps",
            **kit.key(step),
            level="range",
            skipped=bool(row.pop("skipped", False)),
            scale=row.get("scale"),
        )
        filled = {"numel": 100, "zeros": 0, "nan": 0, "posinf": 0, "neginf": 0, "ge_65520": 0, "sumsq": 1.0}
        kit.add(
            "tensors", **kit.key(step, "backward"), name="w", module="", role="grad", stage="pre_unscale",
            basis="observed", order=0, **{**filled, **row},
        )  # fmt: skip
    return Source(Cache(open_trace(kit.write(path))))


def test_what_is_held_in_a_fixed_order(src: Source) -> None:
    held = tensors.held(src)
    assert [(h.role, h.stage) for h in held] == [
        ("grad", "pre_unscale"), ("activation_grad", ""), ("activation", ""), ("weight", ""), ("exp_avg_sq", ""),
    ]  # fmt: skip
    assert held[0].tensors == 28
    assert held[2].tensors == len(module_names(2))


@pytest.mark.parametrize("low", [-40, -30, -26, -25, -20, -14, -3])
def test_the_bands_of_float16_are_counted_exactly(tmp_path: Path, low: int) -> None:
    counts = [3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41]
    src = one_tensor(
        tmp_path / "r", [{"dtype": "float32", "scale": 1.0, "hist_lo": low, "hist": counts, "amax": 1.0}]
    )
    row = tensors.heat(src, "grad", "pre_unscale").iloc[0]
    exponents = low + np.arange(len(counts))
    assert row["flushed"] == np.sum(np.array(counts)[exponents < -25])
    assert row["subnormal"] == np.sum(np.array(counts)[(exponents >= -25) & (exponents < -14)])


def test_a_heat_map_of_a_long_run_has_a_bounded_number_of_columns(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"dtype": "float32", "scale": 1.0, "hist_lo": -4, "hist": [100], "amax": 1.0 + (step == 777)}
        for step in range(1000)
    ]
    frame = tensors.heat(one_tensor(tmp_path / "r", rows), "grad", "pre_unscale")
    assert len(frame) <= tensors.COLUMNS
    assert frame["numel"].sum() == 100_000
    spike = frame[frame["amax"] == 2.0].iloc[0]
    assert spike["first"] <= 777 <= spike["last"]


def test_history_takes_the_scale_out(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {
            "dtype": "float32",
            "scale": 1024.0,
            "hist_lo": 0,
            "hist": [1, 2],
            "amax": 3.0,
            "zeros": 4,
            "nan": 1,
        },
        {"dtype": "float32", "scale": 2048.0, "hist_lo": 1, "hist": [5], "amax": 2.0, "posinf": 2},
    ]
    found = tensors.history(one_tensor(tmp_path / "r", rows), "grad", "pre_unscale", "w")
    assert found is not None
    assert (found.low, found.high) == (-10, -9)
    assert found.counts.tolist() == [[1, 5], [2, 0]]
    assert found.zeros.tolist() == [4, 0]
    assert found.nan.tolist() == [1, 0]
    assert found.inf.tolist() == [0, 2]
    assert found.amax.tolist() == [3.0 / 1024, 2.0 / 2048]
    assert not found.inexact


def test_a_scale_that_is_no_power_of_two_is_said(tmp_path: Path) -> None:
    row: dict[str, object] = {"dtype": "float32", "scale": 1000.0, "hist_lo": 0, "hist": [1], "amax": 1.0}
    found = tensors.history(one_tensor(tmp_path / "r", [row]), "grad", "pre_unscale", "w")
    assert found is not None
    assert found.inexact


def test_history_of_a_tensor_that_is_all_zeros(tmp_path: Path) -> None:
    row: dict[str, object] = {"dtype": "float16", "scale": 1.0, "zeros": 100, "hist": [], "hist_lo": 0}
    found = tensors.history(one_tensor(tmp_path / "r", [row]), "grad", "pre_unscale", "w")
    assert found is not None
    assert found.counts.sum() == 0
    assert found.zeros.tolist() == [100]


def test_no_such_tensor(src: Source) -> None:
    assert tensors.history(src, "grad", "pre_unscale", "nobody") is None


def test_spectra_leave_skipped_steps_out(tmp_path: Path) -> None:
    good: dict[str, object] = {
        "dtype": "float32",
        "scale": 2.0,
        "hist_lo": 1,
        "hist": [10, 0, 4],
        "amax": 12.0,
    }
    bad: dict[str, object] = {**good, "scale": 2.0**30, "posinf": 7, "amax": 60000.0, "skipped": True}
    found = tensors.spectra(one_tensor(tmp_path / "r", [bad, good, dict(good)]), "grad", "pre_unscale")
    assert len(found) == 1
    assert (found[0].low, found[0].counts, found[0].amax, found[0].nonfinite) == (0, (20, 0, 8), 6.0, 0)


def test_spectra_of_zeros_have_no_counts(tmp_path: Path) -> None:
    row: dict[str, object] = {"dtype": "float16", "scale": 1.0, "zeros": 100, "hist": [], "hist_lo": 0}
    found = tensors.spectra(one_tensor(tmp_path / "r", [row]), "grad", "pre_unscale")
    assert found[0].counts == ()
    assert found[0].amax == 0.0


def test_limits_and_floors_of_the_scale(src: Source) -> None:
    limits = tensors.limits(src)
    assert limits["step"].is_monotonic_increasing
    assert set(limits["closer"]) == {"wte.weight"}
    floors = tensors.floors(src)
    assert not set(floors["step"]) & {0, 1, 24}
    assert (floors["exponent"] < np.log2(limits["amax"].min())).all()


def test_a_run_without_tensors(bare: Source) -> None:
    assert tensors.held(bare) == []
    assert tensors.spectra(bare, "grad", "") == []
    assert tensors.limits(bare).empty
    assert tensors.floors(bare).empty


def test_a_heat_map_without_the_histograms_is_the_same_map(src: Source) -> None:
    keys = ["name", "bucket"]
    whole = tensors.heat(src, "grad", "pre_unscale").sort_values(keys, ignore_index=True)
    quick = tensors.heat(src, "grad", "pre_unscale", low=False).sort_values(keys, ignore_index=True)
    assert set(whole.columns) - set(quick.columns) == {"flushed", "subnormal"}
    pd.testing.assert_frame_equal(whole[quick.columns], quick)


def test_sampled_histograms_add_up_as_sql_adds_them(src: Source) -> None:
    steps = sorted(set(tensors.sampled(src, "grad", "pre_unscale")["step"].tolist()))
    expected = src.frame(
        """
        SELECT step, exponent, CAST(sum(n) AS BIGINT) AS n FROM (
            SELECT step, unnest(hist) AS n,
                   hist_lo - CAST(log2(scale) AS INT) + generate_subscripts(hist, 1) - 1 AS exponent
            FROM {tensors} WHERE list_contains(?, step)
              AND (role = 'activation_grad' OR (role = 'grad' AND stage = 'pre_unscale')))
        GROUP BY step, exponent ORDER BY step, exponent""",
        tuple(steps),
    )
    pd.testing.assert_frame_equal(tensors.totals(src), expected, check_dtype=False)
    alone = {s.name: sum(s.counts) for s in tensors.spectra(src, "grad", "pre_unscale")}
    rows = tensors.sampled(src, "grad", "pre_unscale")
    assert alone == rows["hist"].map(sum).groupby(rows["name"]).sum().to_dict()


def test_a_missing_histogram_is_left_out(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"dtype": "float32", "scale": 1.0, "hist_lo": None, "hist": None, "amax": None},
        {"dtype": "float32", "scale": 1.0, "hist_lo": -3, "hist": [2, 0, 1], "amax": 0.9},
    ]
    src = one_tensor(tmp_path / "r", rows)
    (found,) = tensors.spectra(src, "grad", "pre_unscale")
    assert (found.low, found.counts, found.amax) == (-3, (2, 0, 1), 0.9)
    assert tensors.totals(src)["step"].tolist() == [1, 1, 1]
