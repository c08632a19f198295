from __future__ import annotations

from pathlib import Path

import pytest

from ampscope.diagnose.diagnosis import Coverage, NotMeasurable, RunSummary
from ampscope.diagnose.finding import Finding, Severity, Where
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.verdict import verdict_of
from ampscope.trace.reader import open_trace
from tests.diagnose.handmade import step, write

COVERAGE = Coverage(("AMP101",), ("AMP102", "AMP103"), (NotMeasurable("AMP601", "no GPU"),))


def verdict(
    tmp_path: Path, *findings: Finding, steps: int = 9, state: str = "complete", left: tuple[str, ...] = ()
) -> str:
    run = RunSummary(("train.py",), "", state, 0, None, steps, 0, 1, "2.13", "cpu", True, "0.1")
    with open_trace(write(tmp_path, {"steps": [step(0)]})) as trace:
        return verdict_of(Signals(trace), run, findings, COVERAGE, left)


def finding(severity: Severity, where: Where | None = None, do: str = "Call `x` first.") -> Finding:
    return Finding(
        "AMP101", "clip-before-unscale", severity, where or Where(file="/a/train.py", line=7), "C.", do
    )


def test_the_first_cause_and_what_to_do(tmp_path: Path) -> None:
    text = verdict(tmp_path, finding("critical"), finding("warning"), finding("info"))
    assert text == "AMP101 clip-before-unscale at train.py:7: call `x` first. 1 more finding follows."


@pytest.mark.parametrize(
    ("where", "place"),
    [
        (Where(module="blocks.0"), " in blocks.0:"),
        (Where(tensor="w"), " in w:"),
        (Where(), "clip-before-unscale:"),
    ],
)
def test_the_place_that_is_known(tmp_path: Path, where: Where, place: str) -> None:
    assert place in verdict(tmp_path, finding("critical", where))


def test_a_name_keeps_its_capital(tmp_path: Path) -> None:
    assert "GradScaler is" in verdict(tmp_path, finding("critical", do="GradScaler is off."))


def test_healthy_says_in_how_much(tmp_path: Path) -> None:
    text = verdict(tmp_path, finding("info"))
    assert text == (
        "No fault found in 9 optimizer steps: 2 checks clean, 1 could not be measured. 1 note for information."
    )
    assert "before the run was cut off" in verdict(tmp_path / "b", state="cut_off")
    assert "so far" in verdict(tmp_path / "c", state="live")


def test_symptoms_without_a_cause_are_not_called_healthy(tmp_path: Path) -> None:
    assert verdict(tmp_path, left=("The run ended with KeyError: 'x'",)).startswith(
        "No fault of precision explains"
    )


def test_no_step_yet(tmp_path: Path) -> None:
    assert "has not taken an optimizer step yet" in verdict(tmp_path, steps=0, state="live")
