from __future__ import annotations

from pathlib import Path

from ampscope.diagnose.signals import Signals
from ampscope.diagnose.symptoms import (
    BAD_LOSS,
    BAD_WEIGHTS,
    CRASH,
    SCALE_FALL,
    SKIPS,
    Symptom,
    symptoms_of,
)
from ampscope.trace.reader import open_trace
from tests.diagnose.handmade import Row, key, scaler, step, write


def symptoms(tmp_path: Path, **tables: list[Row]) -> dict[str, Symptom]:
    with open_trace(write(tmp_path, tables)) as trace:
        return {s.kind: s for s in symptoms_of(Signals(trace))}


def test_a_healthy_run_shows_nothing(tmp_path: Path) -> None:
    assert symptoms(tmp_path, steps=[step(0), step(1)]) == {}


def test_the_skips_of_a_scale_search_alarm_nobody(tmp_path: Path) -> None:
    found = symptoms(
        tmp_path,
        steps=[step(0, "skipped"), step(1)],
        scaler=[scaler(0, 64.0, 32.0, True), scaler(1, 32.0, 32.0)],
    )
    assert not found[SKIPS].alarming
    assert "1 of 2 steps skipped" in found[SKIPS].sentence


def test_skips_after_the_search_and_a_falling_scale(tmp_path: Path) -> None:
    bad = [scaler(i, 2.0 ** (16 - i), 2.0 ** (15 - i), True) for i in range(1, 9)]
    found = symptoms(
        tmp_path,
        steps=[step(0), *(step(i, "skipped") for i in range(1, 9))],
        scaler=[scaler(0, 2.0**15, 2.0**15), *bad],
    )
    assert found[SKIPS].alarming
    assert found[SCALE_FALL].step == 1
    assert "2^15" in found[SCALE_FALL].sentence


def test_nonfinite_loss_weights_and_a_crash(tmp_path: Path) -> None:
    found = symptoms(
        tmp_path,
        steps=[step(0), step(1, loss=float("nan")), step(2, loss=None)],
        nonfinite=[{**key(2), "name": "w", "role": "weight"}],
        events=[{**key(2), "event": "exception", "subject": "ValueError", "message": "no\nmore"}],
    )
    assert found[BAD_LOSS].sentence == "The loss is NaN or inf in 1 of 2 steps, first at step 1."
    assert found[BAD_WEIGHTS].step == 2
    assert found[CRASH].sentence == "The run ended with ValueError: no"
