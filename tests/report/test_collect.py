from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ampscope.diagnose.diagnosis import Silenced
from ampscope.report.collect import collect
from ampscope.report.model import Report
from ampscope.trace import liveness
from ampscope.trace.reader import Trace, open_trace
from ampscope.trace.records import RunInfo
from ampscope.trace.runinfo import COMPLETE_FILE, write_run
from ampscope.verify.outcome import Outcome
from tests.report.handmade import GENERATOR, TRAIN, make_diagnosis

GONE = replace(liveness.current(), start=1)
"""A process that once had this pid."""


def test_the_run_is_described(report: Report) -> None:
    run = report.run
    assert run.script == TRAIN
    assert run.exit == "exit status 1"
    assert run.state == "complete"
    assert run.settings == {"level": "watch", "every": "5", "budget": "2.0"}
    (process,) = run.processes
    assert process.devices == ("Example GPU (capability 9.0)",)
    assert process.native == ("bfloat16",)
    assert list(process.versions) == ["python", "torch", "numpy"]


def test_overhead_and_events(report: Report) -> None:
    assert report.overhead.share == pytest.approx(0.01)
    assert report.overhead.collectors == (("ranges", 0.01),)
    assert report.overhead.notes == ("Latest choice of the budget: every 5 steps: 0.9 % of wall time.",)
    assert report.events is not None
    assert report.events.rows[0][1:3] == ("exception", "RuntimeError")
    assert report.crash.startswith("Traceback")
    assert report.symptoms == ("The loss was NaN at step 1.",)
    assert report.generator == GENERATOR


def test_silenced_codes_are_told(trace: Trace) -> None:
    diagnosis = make_diagnosis()
    muted = replace(
        diagnosis, coverage=replace(diagnosis.coverage, silenced=(Silenced("AMP112", "on purpose"),))
    )
    assert collect(trace, muted).coverage.silenced == (("AMP112", "on purpose"),)


def test_what_a_re_run_showed_stands_with_its_finding(trace: Trace) -> None:
    diagnosis = make_diagnosis()
    first, *others = diagnosis.findings
    outcome = Outcome(first.code, first.where, "verified", "set", "verified: it is gone.")
    found = collect(trace, diagnosis, outcomes=(outcome,))
    assert found.findings[0].verification == "verified: it is gone."
    assert [f.verification for f in found.findings[1:]] == [""] * len(others)


@pytest.mark.parametrize(
    ("info", "complete", "said"),
    [
        (RunInfo(exit_status=0), True, "exit status 0"),
        (RunInfo(exit_signal=9), True, "ended by signal 9"),
        (RunInfo(supervisor=GONE), False, "cut off: it did not end by itself"),
    ],
)
def test_how_a_run_ended(tmp_path: Path, info: RunInfo, complete: bool, said: str) -> None:
    write_run(tmp_path, info)
    if complete:
        (tmp_path / COMPLETE_FILE).touch()
    with open_trace(tmp_path) as opened:
        found = collect(opened, make_diagnosis())
    assert found.run.exit == said
    assert any("cut off" in line for line in found.integrity) is not complete
    assert found.timeline.buckets == ()
    assert found.events is None


def test_damage_is_told(run_dir: Path, tmp_path: Path) -> None:
    import shutil

    broken = tmp_path / "run"
    shutil.copytree(run_dir, broken)
    part = next((broken / "updates").rglob("*.parquet"))
    part.write_bytes(part.read_bytes()[:-9])
    with open_trace(broken) as opened:
        found = collect(opened, make_diagnosis())
    assert any(line.startswith(f"Left out: updates/rank=0/{part.name}: ") for line in found.integrity)
    assert "Updates against weights" not in [t.title for t in found.tables]
