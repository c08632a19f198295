from __future__ import annotations

from pathlib import Path

import pytest

from ampscope.diagnose.engine import MISSING, NOTHING, diagnose, fold, rank_key
from ampscope.diagnose.finding import Abstain, Finding, Severity, Where
from ampscope.diagnose.rule import MECHANISM, ROOT, SYMPTOM, Found, Rule, all_rules
from ampscope.diagnose.signals import Signals
from ampscope.diagnose.symptoms import SKIPS
from ampscope.trace.reader import open_trace
from ampscope.trace.schema import TABLES
from tests.diagnose.handmade import scaler, step, write
from tests.diagnose.judging import schema

RUN = {"steps": [step(i) for i in range(4)]}


def made(
    code: str,
    *found: Finding | Abstain,
    needs: tuple[str, ...] = (),
    explains: tuple[str, ...] = (),
    later: tuple[str, ...] = (),
    depth: int = ROOT,
    error: Exception | None = None,
) -> Rule:
    def check(rule: Rule, signals: Signals) -> Found:
        if error is not None:
            raise error
        yield from found

    return Rule(code, code.lower(), "warning", needs, explains, later, depth, check)


def finding(
    code: str, severity: Severity = "warning", causes: tuple[str, ...] = (), steps: tuple[int, int] | None = None,
    module: str | None = None,
) -> Finding:  # fmt: skip
    where = Where(module=module, steps=steps)
    return Finding(code, code.lower(), severity, where, f"Claim {code}.", f"Do {code}.", causes=causes)


def codes(tmp_path: Path, *rules: Rule, silence: dict[str, str] | None = None) -> list[str]:
    with open_trace(write(tmp_path, RUN)) as trace:
        return [f.code for f in diagnose(trace, silence, rules).findings]


def test_a_rule_that_raises_costs_its_own_line(tmp_path: Path) -> None:
    rules = [made("AMP901", error=ZeroDivisionError("by\nzero")), made("AMP902", finding("AMP902"))]
    with open_trace(write(tmp_path, RUN)) as trace:
        found = diagnose(trace, rules=rules)
    assert [f.code for f in found.findings] == ["AMP902"]
    (line,) = found.coverage.not_measurable
    assert line.code == "AMP901"
    assert "ZeroDivisionError: by zero" in line.why


def test_a_trace_without_a_row_gives_no_clean_bill(tmp_path: Path) -> None:
    with open_trace(write(tmp_path, {"steps": []})) as trace:
        found = diagnose(trace)
    assert found.coverage.clean == ()
    whys = {n.code: n.why for n in found.coverage.not_measurable}
    assert len(whys) == len(all_rules())
    assert whys["AMP123"] == NOTHING
    assert whys["AMP202"] == MISSING["scaler"]


@pytest.mark.parametrize("harm", ["damaged", "missing"])
def test_rows_that_were_lost_are_not_rows_that_were_never_there(tmp_path: Path, harm: str) -> None:
    run = write(tmp_path, {**RUN, "scaler": [scaler(0, 8.0, 8.0)]})
    (part,) = run.glob("scaler/rank=0/*.parquet")
    if harm == "damaged":
        part.write_bytes(part.read_bytes()[:100])
    else:
        part.unlink()
    with open_trace(run) as trace:
        (line,) = diagnose(trace, rules=[made("AMP901", needs=("scaler",))]).coverage.not_measurable
    assert line.why == "the rows of scaler could not be read"


def test_coverage_says_of_every_rule_what_became_of_it(tmp_path: Path) -> None:
    rules = [
        made("AMP901", finding("AMP901")),
        made("AMP902"),
        made("AMP903", Abstain("no signal")),
        made("AMP904", needs=("scaler",)),
        made("AMP905", finding("AMP905")),
    ]
    with open_trace(write(tmp_path, RUN)) as trace:
        found = diagnose(trace, {"amp905": "known"}, rules)
    coverage = found.coverage
    assert coverage.fired == ("AMP901",)
    assert coverage.clean == ("AMP902",)
    assert {n.code: n.why for n in coverage.not_measurable} == {
        "AMP903": "no signal",
        "AMP904": MISSING["scaler"],
    }
    assert [(s.code, s.reason) for s in coverage.silenced] == [("AMP905", "known")]
    assert [f.code for f in found.findings] == ["AMP901"]
    schema().validate(found.to_json())


def test_every_table_has_a_reason_for_its_absence() -> None:
    assert MISSING.keys() == TABLES.keys()


def test_one_finding_per_cause_and_place(tmp_path: Path) -> None:
    same = [finding("AMP901", steps=(3, 4)), finding("AMP901", "critical", steps=(1, 2))]
    with open_trace(write(tmp_path, RUN)) as trace:
        found = diagnose(trace, rules=[made("AMP901", *same, finding("AMP901", module="other"))])
    assert [(f.where.module, f.severity, f.where.steps) for f in found.findings] == [
        (None, "critical", (1, 4)),
        ("other", "warning", None),
    ]


def test_worst_first_then_the_deeper_cause_then_the_earlier(tmp_path: Path) -> None:
    rules = [
        made("AMP901", finding("AMP901", "info")),
        made("AMP902", finding("AMP902", "critical", steps=(5, 5)), depth=SYMPTOM),
        made("AMP903", finding("AMP903", "critical", steps=(7, 7)), depth=MECHANISM),
        made("AMP904", finding("AMP904", "critical", steps=(9, 9)), depth=ROOT),
        made("AMP905", finding("AMP905", "critical", steps=(2, 9)), depth=ROOT),
    ]
    assert codes(tmp_path, *rules) == ["AMP905", "AMP904", "AMP903", "AMP902", "AMP901"]


def test_what_a_cause_explains_stands_under_it(tmp_path: Path) -> None:
    rules = [
        made("AMP901", finding("AMP901", causes=("AMP902",))),
        made("AMP902", finding("AMP902", "critical", causes=("AMP903",))),
        made("AMP903", finding("AMP903")),
        made("AMP904", finding("AMP904", "info")),
    ]
    with open_trace(write(tmp_path, RUN)) as trace:
        found = diagnose(trace, rules=rules)
    assert [f.code for f in found.findings] == ["AMP901", "AMP904"]
    assert found.findings[0].severity == "critical"
    assert [s.split()[0] for s in found.findings[0].symptoms] == ["AMP902", "AMP903"]
    assert found.coverage.fired == ("AMP901", "AMP902", "AMP903", "AMP904")


def test_nothing_explains_what_came_before_it() -> None:
    rules = {c: made(c) for c in ("AMP901", "AMP902")}
    cause = finding("AMP901", causes=("AMP902",), steps=(10, 20))
    before, during = finding("AMP902", steps=(2, 5)), finding("AMP902", steps=(2, 15))
    assert len(fold([cause, before], rules)) == 2
    assert len(fold([cause, during], rules)) == 1


def test_what_can_only_follow_later_must_begin_later() -> None:
    rules = {"AMP901": made("AMP901", later=("AMP902",)), "AMP902": made("AMP902")}
    cause = finding("AMP901", causes=("AMP902",), steps=(0, 20))
    assert len(fold([cause, finding("AMP902", steps=(0, 20))], rules)) == 2
    assert len(fold([cause, finding("AMP902", steps=(1, 20))], rules)) == 1


def test_two_that_explain_each_other_leave_one() -> None:
    rules = {"AMP901": made("AMP901"), "AMP902": made("AMP902")}
    pair = [finding("AMP901", causes=("AMP902",)), finding("AMP902", causes=("AMP901",))]
    assert len(fold(pair, rules)) == 1


def test_independent_faults_stay_two_findings(tmp_path: Path) -> None:
    assert codes(tmp_path, made("AMP901", finding("AMP901")), made("AMP902", finding("AMP902"))) == [
        "AMP901",
        "AMP902",
    ]


def test_a_general_symptom_goes_to_the_first_that_explains_its_kind(tmp_path: Path) -> None:
    tables = {
        "steps": [step(0), *(step(i, "skipped") for i in range(1, 5))],
        "scaler": [scaler(0, 8.0, 8.0), *(scaler(i, 8.0, 4.0, True) for i in range(1, 5))],
    }
    rules = [made("AMP901", finding("AMP901")), made("AMP902", finding("AMP902", causes=(SKIPS,)))]
    with open_trace(write(tmp_path, tables)) as trace:
        found = diagnose(trace, rules=rules)
        alone = diagnose(trace, rules=rules[:1])
    assert [len(f.symptoms) for f in found.findings] == [0, 1]
    assert "4 of 5 steps skipped" in found.findings[1].symptoms[0]
    assert alone.symptoms


def test_equal_traces_give_equal_answers(tmp_path: Path) -> None:
    with open_trace(write(tmp_path, RUN, ranks=2)) as trace:
        assert diagnose(trace) == diagnose(trace)


def test_rank_key_is_total() -> None:
    rules = {r.code: r for r in all_rules()}
    keys = [rank_key(finding(code), rules) for code in rules]
    assert len(set(keys)) == len(keys)
    assert len(sorted(keys)) == len(keys)


@pytest.mark.parametrize(
    ("tables", "finished", "sentence"),
    [
        ({"calls": []}, True, "took no optimizer step"),
        ({"steps": [step(0, "cut_off")]}, False, "cut off before its first optimizer step"),
        ({"steps": [step(0, "abandoned")]}, True, "took no optimizer step"),
    ],
)
def test_runs_without_a_step_get_the_one_right_sentence(
    tmp_path: Path, tables: dict[str, list[dict[str, object]]], finished: bool, sentence: str
) -> None:
    run = write(tmp_path, tables, finished=finished)
    with open_trace(run) as trace:
        found = diagnose(trace)
    assert found.findings == ()
    assert "itself failed" not in str(found.coverage)
    if trace.info.state != "live":
        assert sentence in found.verdict
    schema().validate(found.to_json())
