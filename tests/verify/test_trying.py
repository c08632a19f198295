from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ampscope.diagnose.engine import diagnose
from ampscope.diagnose.finding import Change, Finding
from ampscope.trace.reader import Trace, open_trace
from ampscope.trace.runinfo import create_run, finish_run
from ampscope.verify.outcome import How
from ampscope.verify.trying import verify
from tests.support.forked_recorder import ForkedRecorder


@pytest.fixture
def finding(sawtooth: Trace) -> Finding:
    return next(f for f in diagnose(sawtooth).findings if f.code == "AMP202")


def test_advice_that_holds(
    sawtooth: Trace, finding: Finding, recorder: ForkedRecorder, tmp_path: Path
) -> None:
    told: list[tuple[int, int]] = []
    outcome = verify(
        sawtooth,
        finding,
        "set",
        tmp_path,
        recorder=recorder,
        progress=lambda taken, wanted: told.append((taken, wanted)),
    )
    assert outcome.verdict == "verified", outcome.sentence
    assert outcome.sentence.startswith("verified: AMP202 is gone after ")
    assert f"--set scaler.growth_interval={finding.change.set['scaler.growth_interval']}" in outcome.sentence
    measured = {m.metric: (m.before, m.after) for m in outcome.measures}
    before, after = measured["skipped steps"]
    assert before is not None
    assert after is not None
    assert before >= 5 > after
    assert measured["growth_interval"] == (2, 2000)
    assert outcome.where == finding.where
    argv, settings, steps = recorder.asked[-1]
    assert argv[1:] == ["train.py"]
    assert settings.overrides == {k: [v] for k, v in finding.change.set.items()}
    assert told == [(0, steps)]


def test_the_patch_of_it(sawtooth: Trace, finding: Finding, recorder: ForkedRecorder, tmp_path: Path) -> None:
    outcome = verify(sawtooth, finding, "patch", tmp_path, steps=40, recorder=recorder)
    assert outcome.verdict == "verified", outcome.sentence
    assert outcome.steps == 40
    assert "with the patch" in outcome.sentence
    assert "growth_interval=2000" in (tmp_path / "source" / "train.py").read_text()
    original = Path(sawtooth.info.cwd, "train.py").read_text()
    assert "growth_interval=2)" in original


def with_change(finding: Finding, key: str, value: str) -> Finding:
    return replace(finding, change=Change({key: value}))


def test_advice_that_does_not(
    sawtooth: Trace, finding: Finding, recorder: ForkedRecorder, tmp_path: Path
) -> None:
    wrong = with_change(finding, "scaler.growth_interval", "3")
    outcome = verify(sawtooth, wrong, "set", tmp_path, recorder=recorder)
    assert outcome.sentence.startswith("refuted: AMP202 is still there after "), outcome.sentence


def test_advice_without_effect(
    sawtooth: Trace, finding: Finding, recorder: ForkedRecorder, tmp_path: Path
) -> None:
    idle = with_change(finding, "optimizer.eps", "1e-4")
    outcome = verify(sawtooth, idle, "set", tmp_path, recorder=recorder)
    assert outcome.sentence.startswith("undecidable: the change had no effect on this run"), outcome.sentence


def test_advice_that_is_no_override(sawtooth: Trace, finding: Finding, tmp_path: Path) -> None:
    outcome = verify(sawtooth, replace(finding, change=Change()), "set", tmp_path)
    assert outcome.sentence == (
        "undecidable: the advice of AMP202 is no override; try its patch: ampscope verify --patched."
    )


def test_advice_without_a_patch(sawtooth: Trace, finding: Finding, tmp_path: Path) -> None:
    outcome = verify(sawtooth, with_change(finding, "module.fp32", "head"), "patch", tmp_path)
    assert outcome.sentence.startswith("undecidable: there is no patch: `module.fp32=head`")


def test_a_command_that_fails_before_its_first_step(
    sawtooth: Trace, finding: Finding, recorder: ForkedRecorder, tmp_path: Path
) -> None:
    def elsewhere(argv: list[str], *rest: object, **more: object) -> object:
        (tmp_path / "gone.py").write_text("raise FileNotFoundError('data.bin')")
        return recorder([argv[0], str(tmp_path / "gone.py")], *rest, **more)  # type: ignore[arg-type]

    outcome = verify(sawtooth, finding, "set", tmp_path / "x", recorder=elsewhere)  # type: ignore[arg-type]
    assert outcome.sentence == (
        "undecidable: the run with the change recorded no step: FileNotFoundError: data.bin."
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"settings": {"recorder": True}}, "was recorded by ampscope.Recorder in the script"),
        ({"command": []}, "which is gone"),
        ({"cwd": "/nowhere"}, "the command ran in /nowhere, which is gone"),
        ({"command": [sys.executable, "-"]}, "the script came from standard input"),
    ],
)
def test_runs_that_cannot_be_run_again(
    finding: Finding, tmp_path: Path, change: dict[str, object], said: str
) -> None:
    run = tmp_path / "run"
    create_run(run, [sys.executable, "train.py"], {})
    finish_run(run, 0)
    raw = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**raw, **change}))
    with open_trace(run) as trace:
        outcome = verify(trace, finding, "set", tmp_path / "new", steps=5)
    assert outcome.verdict == "undecidable"
    assert said in outcome.sentence


def test_a_script_that_changed_since(
    sawtooth: Trace, finding: Finding, recorder: ForkedRecorder, tmp_path: Path
) -> None:
    script = Path(sawtooth.info.cwd, "train.py")
    text = script.read_text()
    try:
        script.write_text(text + "\n")
        hows: tuple[How, ...] = ("set", "patch")
        for how in hows:
            outcome = verify(sawtooth, finding, how, tmp_path / how, recorder=recorder)
            assert "train.py changed since the run: record it again" in outcome.sentence
    finally:
        script.write_text(text)
