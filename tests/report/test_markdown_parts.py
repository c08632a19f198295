from __future__ import annotations

import math

from ampscope.report.markdown_parts import (
    Trim,
    exponents,
    facts,
    grouped,
    key_values,
    mermaid,
    sparklines,
    table,
)
from ampscope.report.model import Bucket, Column, Fact, HeatMap, Table, Timeline


def buckets(*scales: float | None) -> tuple[Bucket, ...]:
    return tuple(Bucket(i, i, s, s, s, 1.0 + i, 0, int(i == 1)) for i, s in enumerate(scales))


def test_facts() -> None:
    assert facts([Fact("flushed", 3e-8, "share", "of all", "predicted")]).endswith(
        "| flushed | **3e-6 %** | predicted, of all |"
    )
    assert facts([]) == ""


def test_a_table_says_what_it_left_out() -> None:
    shown = Table("t", (Column("a", "name"), Column("b", "number")), (("x|y", 1), (None, None), ("z", 3)), 9)
    lines = table(shown, Trim(rows=2)).splitlines()
    assert lines[2:] == ["| `x\\|y` | 1 |", "| – | – |", "", "… and 7 more rows."]


def test_sparklines_share_one_axis() -> None:
    said = sparklines(Timeline(buckets(16.0, 8.0, 8.0, 4.0)))
    assert said.splitlines()[1:-1] == [
        "scale 2^2 … 2^4  █▅▅▁",
        "skipped ▲        ·▲··",
        "loss 1 … 4       ▁▃▆█",
    ]
    assert sparklines(Timeline(buckets(16.0))) == ""


def test_a_loss_that_was_never_finite() -> None:
    bad = tuple(Bucket(i, i, None, None, None, None, 1, 0) for i in range(3))
    assert "loss (× NaN or inf)  ×××" in sparklines(Timeline(bad))


def test_mermaid_only_when_the_scale_moves() -> None:
    said = mermaid(Timeline(buckets(None, 16.0, None, 4.0)))
    assert "line [4, 4, 2]" in said
    assert 'y-axis "log2(scale)" 1 --> 5' in said
    assert mermaid(Timeline(buckets(8.0, 8.0))) == ""
    assert mermaid(Timeline(buckets(None, math.inf))) == ""
    assert len(mermaid(Timeline(buckets(*(2.0 ** (i % 9) for i in range(400)))))) < 600


def test_the_exponents_stand_above_their_ruler() -> None:
    cells = tuple((0.5 if e in (-30, 3) else None,) for e in range(20, -36, -1))
    heat = HeatMap("t", "exponent-rows", -35, 20, ("0",), cells, (0.0,), (0.0,))
    _, _, line, names, ruler, _ = exponents(heat).split("\n")
    assert line.index("▄") - 1 == -30 - -35
    assert names.index("normal float16") == line.index("│", line.index("│", 1) + 1 + 11 - 1) + 1
    assert ruler.startswith("2^-35")
    for edge in ("2^-25", "2^-14", "2^16"):
        assert line[ruler.index(edge)] == "│"


def test_gradients_without_a_finite_element_have_no_ruler() -> None:
    heat = HeatMap("t", "exponent-rows", -35, 20, ("0",), ((0.0,),) * 55 + ((None,),), (0.0,), (1.0,))
    assert exponents(heat) == "No sampled gradient element was finite and other than zero."


def test_key_values_are_code() -> None:
    assert key_values([("command", "a `b`")]) == "- **command:** `` a `b` ``"


def test_grouped() -> None:
    assert [len(g) for g in grouped(buckets(*range(1, 8)), 3)] == [3, 3, 1]


def test_trim_cuts_texts() -> None:
    assert len(Trim(words=50).cut("x" * 100)) == 50
    assert len(Trim(words=50).cut("x" * 100, 20)) == 20
