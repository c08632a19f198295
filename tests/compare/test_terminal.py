from __future__ import annotations

import io

import pytest
from rich.console import Console

from ampscope.compare.terminal import print_precisions, print_runs, seconds, size
from tests.compare.handmade import make_comparison, make_table


def console() -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, width=140), out


def test_the_table_of_precisions() -> None:
    shown, out = console()
    print_precisions(make_table(), shown)
    lines = out.getvalue().splitlines()
    assert (
        lines[0].split()
        == "precision step steps/s speed memory skipped last loss loss distance verdict".split()
    )
    assert lines[1].split() == "fp32 2 ms 500 1.00 x 2.00 GB 0 0.5 - healthy".split()
    assert (
        lines[2].split()
        == "fp16 500 us 2000 4.00 x 900 MB 7 0.25 (3 bad) 3 % AMP403 half-reduction-overflow +1".split()
    )
    assert lines[3].split() == "bf16 - - - - - - - nothing recorded".split()
    assert lines[4] == "fp16 ended with exit status 1: RuntimeError: [no]"
    assert lines[5] == "The script has no GradScaler: fp16 ran without loss scaling."


def test_two_runs_that_part() -> None:
    shown, out = console()
    print_runs(make_comparison(), shown)
    text = out.getvalue()
    assert "command: python train.py [x] | python train.py\n" in text
    assert "The losses part at step 1: 1 and inf (on average 0 % apart).\n" in text
    assert (
        "First to diverge beyond rounding (0.78 %; 24 tensors at 32 steps compared; 1 tensor in one run only): "
        in text
    )
    assert (
        "step 4, grad head.weight (float32 and float16): exact zeros 0 % and 40 % (rms 3e-08 and 0)"
        in " ".join(text.split())
    )
    assert "and 2 more tensors of that step" in text
    assert (
        "only in the second run: AMP403 half-reduction-overflow (critical): A sum [of 3] overflowed." in text
    )


def test_two_runs_that_agree() -> None:
    shown, out = console()
    print_runs(make_comparison(diverges=False), shown)
    text = out.getvalue()
    assert "The losses agree within rounding at 2 common steps" in text
    assert "No tensor diverges beyond rounding (0.78 %): 24 tensors at 32 steps compared" in text
    assert "both runs have the same findings" in text


@pytest.mark.parametrize(("value", "text"), [(2.0, "2 s"), (0.0123, "12.3 ms"), (3e-5, "30 us"), (None, "-")])
def test_seconds(value: float | None, text: str) -> None:
    assert seconds(value) == text


@pytest.mark.parametrize(("value", "text"), [(2_500_000_000, "2.50 GB"), (3_000_000, "3 MB"), (None, "-")])
def test_size(value: int | None, text: str) -> None:
    assert size(value) == text
