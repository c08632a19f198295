from __future__ import annotations

from pathlib import Path
from typing import Any

from ampscope.diagnose import Diagnosis
from ampscope.trace.reader import open_trace
from tests.diagnose.handmade import H200, key, step, write
from tests.diagnose.judging import checked, only


def diagnosis(
    path: Path,
    data_s: float,
    *,
    gpu: bool = False,
    steps: int = 20,
    duration_s: float = 0.1,
    **columns: Any,
) -> Diagnosis:
    """Times cannot be made on purpose on a busy machine, so the steps are written by hand."""
    tables = {
        "steps": [
            step(i, duration_s=duration_s, data_s=data_s if i else 9.0, **columns) for i in range(steps)
        ],
        "params": [{**key(0), "name": "w", "device": "cuda" if gpu else "cpu", "requires_grad": True}],
    }
    with open_trace(write(path, tables, devices=(H200,) if gpu else ())) as trace:
        return checked(trace)


def test_most_of_the_step_is_waiting(tmp_path: Path) -> None:
    finding = only(diagnosis(tmp_path, data_s=0.08), "AMP704")
    assert finding.severity == "info"
    assert "80 %" in finding.claim
    assert "precision is not the bottleneck" in finding.claim


def test_on_a_gpu_it_is_a_warning(tmp_path: Path) -> None:
    assert only(diagnosis(tmp_path, data_s=0.08, gpu=True), "AMP704").severity == "warning"


def test_silent_on_a_loader_that_keeps_up(tmp_path: Path) -> None:
    assert "AMP704" in diagnosis(tmp_path, data_s=0.03).coverage.clean


def test_a_millisecond_of_python_is_no_loader(tmp_path: Path) -> None:
    assert "AMP704" in diagnosis(tmp_path, data_s=0.001, duration_s=0.0015).coverage.clean


def test_too_few_steps_to_say(tmp_path: Path) -> None:
    found = diagnosis(tmp_path, data_s=0.08, steps=6)
    assert "AMP704" in [n.code for n in found.coverage.not_measurable]


def test_a_short_run_whose_steps_were_all_sampled(tmp_path: Path) -> None:
    """Own time may lie within the wait: what is left of it has to be enough."""
    waiting = diagnosis(tmp_path / "a", data_s=0.08, level="range", own_s=0.02)
    assert "60 %" in only(waiting, "AMP704").claim
    assert "AMP704" in diagnosis(tmp_path / "b", data_s=0.08, level="range", own_s=0.04).coverage.clean
