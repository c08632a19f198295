from __future__ import annotations

import math
from xml.etree import ElementTree

from ampscope.report import charts
from ampscope.report.model import Bucket, Chart, Line, Timeline


def bucket(
    step: int, scale: float | None = 8.0, loss: float | None = 1.0, skipped: int = 0, bad: int = 0
) -> Bucket:
    return Bucket(step, step, scale, scale, scale, loss, bad, skipped)


def texts(svg: str) -> str:
    return " ".join(t for t in ElementTree.fromstring(svg).itertext() if t.strip())


def test_the_timeline_marks_skips_and_bad_losses() -> None:
    line = Timeline((bucket(0, skipped=1), bucket(1, 4.0, None, bad=2), bucket(2, 4.0, 0.5)))
    svg = charts.timeline(line)
    said = texts(svg)
    assert "▲ 1 skipped step" in said
    assert "× 2 loss values NaN or inf" in said
    assert svg.count('class="skip"') == 1
    assert charts.describe(line) == (
        "Steps 0 to 2, loss scale from 8 to 4 (lowest 4, highest 8), 1 step skipped, loss from 1 to 0.5, "
        "2 loss values not finite."
    )


def test_the_timeline_of_a_run_without_a_scaler_shows_the_loss_alone() -> None:
    line = Timeline((bucket(0, None), bucket(1, None)))
    assert "loss scale" not in texts(charts.timeline(line))
    assert charts.describe(line) == "Steps 0 to 1, loss from 1 to 1."


def test_scales_that_have_no_logarithm_do_not_stop_the_chart() -> None:
    line = Timeline(tuple(bucket(i, s) for i, s in enumerate((0.0, math.inf, math.nan, 4.0))))
    ElementTree.fromstring(charts.timeline(line))
    assert "no finite loss" in texts(charts.timeline(Timeline((bucket(0, 0.0, None),))))
    assert charts.describe(Timeline()) == "No step was recorded."


def test_lines_break_where_nothing_was_measured_and_cross_what_is_not_finite() -> None:
    chart = Chart(
        "largest |x|",
        (0, 1, 2, 3, 4),
        (Line("a", (1.0, 2.0, None, 4.0, math.inf)), Line("b", (None, None, None, 2.0**-30, 0.0))),
        marks=((65504.0, "largest float16"), (2.0**-24, "smallest")),
        log2=True,
    )
    svg = charts.lines(chart)
    root = ElementTree.fromstring(svg)
    first = next(e for e in root.iter() if e.get("class") == "line s0" and e.tag.endswith("path"))
    assert (first.get("d") or "").count("M") == 2
    assert svg.count('class="nan"') == 1
    assert "smallest" in texts(svg)
    assert "a: 1 to 4, 1 not finite" in texts(svg)


def test_a_chart_of_one_value_has_a_range() -> None:
    assert "<path" in charts.lines(Chart("t", (0, 1), (Line("a", (3.0, 3.0)),)))
    assert "<svg" in charts.lines(Chart("t", (0, 1), (Line("a", (None, math.nan)),)))


def test_no_more_lines_than_can_be_told_apart() -> None:
    chart = Chart("t", (0, 1), tuple(Line(f"n{i}", (1.0, 2.0)) for i in range(9)))
    assert charts.lines(chart).count("<path") == charts.SERIES
