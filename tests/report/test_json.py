from __future__ import annotations

import json
import math
from dataclasses import replace

from ampscope.diagnose.finding import Evidence
from ampscope.report import json as report_json
from ampscope.report.model import Report
from ampscope.report.redacted import redacted
from tests.report.handmade import SECRET, make_diagnosis, redactor
from tests.report.hostile import hostile


def test_it_holds_the_diagnosis_under_the_keys_of_diagnose(report: Report) -> None:
    said = report_json.to_json(report)
    expected = make_diagnosis().to_json()
    assert said["schema"] == expected["schema"]
    assert said["verdict"] == expected["verdict"]
    assert said["coverage"]["not_measurable"] == expected["coverage"]["not_measurable"]
    for got, want in zip(said["findings"], expected["findings"], strict=True):
        assert {key: got[key] for key in want} == want
        assert got["verification"] is None


def test_it_holds_the_context(report: Report) -> None:
    said = report_json.to_json(report)
    assert said["skips"]["total"] == 4
    assert len(said["timeline"]["buckets"]) == 120
    assert said["overhead"]["share"] == report.overhead.share
    assert said["run"]["processes"][0]["versions"]["torch"] == "2.13.0"
    assert [t["title"] for t in said["tables"]] == [t.title for t in report.tables]


def test_every_number_is_valid_json(report: Report) -> None:
    first = report.findings[0]
    evidence = tuple(Evidence("m", value) for value in (math.nan, math.inf, -math.inf, 3e-8))
    odd = replace(report, findings=(replace(first, finding=replace(first.finding, evidence=evidence)),))
    back = json.loads(report_json.render(odd), parse_constant=lambda name: 1 / 0)
    assert [e["value"] for e in back["findings"][0]["evidence"]] == ["nan", "inf", "-inf", 3e-8]
    json.loads(report_json.render(hostile(report)))


def test_redacted_report_holds_nothing_private(report: Report) -> None:
    said = report_json.render(redacted(report, redactor()))
    for private in ("/home/alice", "alice", SECRET, "gpu-07", "proj x"):
        assert private not in said
