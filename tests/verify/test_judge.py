from __future__ import annotations

from ampscope.diagnose.diagnosis import Coverage, Diagnosis, NotMeasurable, RunSummary
from ampscope.diagnose.finding import Change, Finding, Severity, Where
from ampscope.verify.health import Health
from ampscope.verify.judge import Side, judge

SUMMARY = RunSummary((), "", "complete", 0, None, 40, 0, 1, "2.13.0", "cpu", True, "0.1.0")
WELL = Health(40, 0, 0.0, 0, 0, 0, 1.0, 0.01, False)
SICK = Health(40, 40, 1.0, 40, 20, 0, None, 0.01, False)
CRASHED = Health(1, 0, 0.0, 0, 0, 0, None, None, True)


def finding(
    code: str = "AMP403", line: int = 3, severity: Severity = "critical", change: str = "module.fp32"
) -> Finding:
    return Finding(code, "", severity, Where(file="/x/train.py", line=line), "", "", Change({change: "x"}))


def side(
    *found: Finding, health: Health = WELL, unmeasured: str = "", losses: tuple[float, ...] = ()
) -> Side:
    missing = (NotMeasurable(unmeasured, "no op was recorded"),) if unmeasured else ()
    return Side(Diagnosis(SUMMARY, "", found, Coverage((), (), missing)), health, losses)


def verdict(before: Side, after: Side, wanted: int = 40, of: Finding | None = None) -> str:
    found = judge(of or finding(), before, after, wanted)
    return f"{found.verdict}: {found.why}"


def test_gone_and_well() -> None:
    assert verdict(side(finding(), health=SICK), side()) == "verified: AMP403 is gone"


def test_what_was_a_fault_and_is_a_note_now_is_as_good_as_gone() -> None:
    assert verdict(side(finding()), side(finding(severity="info"))) == "verified: AMP403 is gone"


def test_still_there() -> None:
    assert verdict(side(finding()), side(finding(), losses=(1.0, 2.0))) == "refuted: AMP403 is still there"


def test_no_effect_at_all_decides_nothing() -> None:
    same = (1.0, 2.0)
    assert verdict(side(finding(), losses=same), side(finding(), losses=same)).startswith(
        "undecidable: the change had no effect"
    )


def test_moved() -> None:
    assert verdict(side(finding()), side(finding(line=9))) == "refuted: AMP403 moved to train.py:9"


def test_another_place_that_was_there_before_is_another_finding() -> None:
    assert verdict(side(finding(), finding(line=9)), side(finding(line=9))) == "verified: AMP403 is gone"


def test_gone_but_worse() -> None:
    assert verdict(side(finding()), side(health=SICK)) == (
        "refuted: AMP403 is gone, but now the loss is NaN or inf and most steps are skipped"
    )


def test_gone_but_as_ill_as_before() -> None:
    said = verdict(side(finding(), health=SICK), side(health=SICK))
    assert said == "refuted: AMP403 is gone, but the loss is NaN or inf and most steps are skipped"


def test_ill_of_something_that_was_known() -> None:
    before = side(finding(), finding("AMP105"), health=SICK)
    said = verdict(before, side(finding("AMP105"), health=SICK))
    assert (
        said
        == "verified: AMP403 is gone; the loss is NaN or inf and most steps are skipped, for which AMP105 is left"
    )


def test_what_a_crash_had_hidden_shows() -> None:
    said = verdict(side(finding(), health=CRASHED), side(finding("AMP115")))
    assert said == "verified: AMP403 is gone; AMP115 shows now"
    said = verdict(side(finding(), health=CRASHED), side(finding("AMP115"), health=SICK))
    assert said == "verified: AMP403 is gone and the run goes on; AMP115 shows now"


def test_a_run_that_took_too_few_steps() -> None:
    short = Health(3, 0, 0.0, 0, 0, 0, 1.0, 0.01, False)
    assert (
        verdict(side(finding()), side(health=short))
        == "undecidable: the run with the change took only 3 steps of 40"
    )


def test_a_run_that_crashes_with_the_change() -> None:
    assert (
        verdict(side(finding()), side(health=CRASHED))
        == "refuted: AMP403 is gone, but now it ends with an error"
    )


def test_what_cannot_be_measured_any_more() -> None:
    after = side(unmeasured="AMP403")
    assert verdict(side(finding()), after) == (
        "undecidable: AMP403 could not be measured with the change, because no op was recorded"
    )
    assert verdict(side(finding(), health=SICK), after) == "verified: AMP403 is gone"
    of = finding(change="autocast.dtype")
    assert verdict(side(of), after, of=of) == "verified: AMP403 is gone"
