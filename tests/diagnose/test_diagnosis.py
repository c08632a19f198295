from __future__ import annotations

import json

import jsonschema
import pytest

from ampscope.diagnose.diagnosis import Coverage, Diagnosis, RunSummary, finding_to_json
from ampscope.diagnose.finding import Change, Evidence, Finding, Severity, Where
from tests.diagnose.judging import schema

RUN = RunSummary(
    ("train.py",), "2026-11-29T11:00:00Z", "complete", 0, None, 3, 0, 1, "2.13", "cpu", True, "0.1"
)


def finding(severity: Severity) -> Finding:
    return Finding(
        "AMP101", "clip-before-unscale", severity, Where(steps=(1, 2)), "Claim.", "Do.", Change({"k": "v"}, "+ x"),
        (Evidence("m", float("inf")), Evidence("n", 3), Evidence("t", "text")), "Wrong if.", ("S.",),
    )  # fmt: skip


def diagnosis(*findings: Finding) -> Diagnosis:
    return Diagnosis(RUN, "Verdict.", findings, Coverage(("AMP101",), (), ()), ("left over",))


def test_json_is_valid_and_has_no_number_that_json_lacks() -> None:
    made = diagnosis(finding("critical")).to_json()
    schema().validate(made)
    text = json.dumps(made, allow_nan=False)
    assert json.loads(text)["findings"][0]["evidence"][0]["value"] == "inf"
    assert made["run"]["symptoms"] == ["left over"]
    assert list(made) == ["schema", "run", "verdict", "findings", "coverage"]


def test_keys_of_a_finding_are_those_of_the_contract() -> None:
    assert set(finding_to_json(finding("info"))) == {
        "code", "name", "severity", "where", "claim", "recommendation", "change", "evidence", "falsifier", "symptoms",
    }  # fmt: skip


@pytest.mark.parametrize("damage", ["code", "severity", "claim", "extra"])
def test_the_schema_refuses_what_is_not_a_diagnosis(damage: str) -> None:
    made = diagnosis(finding("critical")).to_json()
    wrong = {"code": "X1", "severity": "bad", "claim": "", "extra": 1}[damage]
    made["findings"][0][damage] = wrong
    with pytest.raises(jsonschema.ValidationError):
        schema().validate(made)


def test_severity_gates() -> None:
    found = diagnosis(finding("warning"), finding("info"))
    assert found.worst == "warning"
    assert len(found.at_or_above("info")) == 2
    assert len(found.at_or_above("warning")) == 1
    assert found.at_or_above("critical") == ()
    assert diagnosis().worst is None
