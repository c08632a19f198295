from __future__ import annotations

from dataclasses import replace

from ampscope.diagnose.finding import Evidence, Finding, Where
from ampscope.report.markdown_finding import finding, finding_line, sparks
from ampscope.report.markdown_parts import Trim
from ampscope.report.model import Chart, FindingReport, Line, Report

BARE = Finding("AMP999", "bare", "info", Where(), "Claim.", "Do it.")


def test_what_is_not_known_is_not_said() -> None:
    assert finding(1, FindingReport(BARE), Trim(), True) == (
        "### 1. AMP999 bare (info)\n\nClaim.\n\n**Do:** Do it.\n\n**Advice:** not verified by a re-run"
    )


def test_exhibits_and_queries_can_be_left_out(report: Report) -> None:
    full = finding(1, report.findings[0], Trim(), True)
    short = finding(1, report.findings[0], Trim(queries=False), False)
    assert "Calls of step 0" in full
    assert "```sql" in full
    assert "Calls of step 0" not in short
    assert "```sql" not in short
    assert "clip calls on scaled gradients" in short


def test_a_verified_advice_says_so() -> None:
    said = finding(
        1, FindingReport(BARE, verification="verified: norm 0.8 after, 51234 before"), Trim(), True
    )
    assert "**Advice:** verified: norm 0.8 after, 51234 before" in said


def test_much_evidence_is_cut_and_counted() -> None:
    many = replace(BARE, evidence=tuple(Evidence(f"m{i}", i) for i in range(30)))
    assert "… and 25 more numbers." in finding(1, FindingReport(many), Trim(rows=5), True)


def test_one_line() -> None:
    assert finding_line(7, FindingReport(BARE), Trim()) == "- 7. **AMP999 bare** (info): Claim."


def test_lines_as_characters_name_the_limits_near_them() -> None:
    marks = ((65504.0, "largest float16"), (2.0**-24, "smallest float16"))
    chart = Chart("largest", (0, 1, 2), (Line("a", (1.0, 8.0, float("inf"))),), marks, log2=True)
    assert sparks(chart) == "```\nlargest, steps 0 … 2\na: 1 … 8  ▁█×\n```"
    near = replace(chart, lines=(Line("a", (1.0, 4096.0, 8192.0)),))
    assert "limits: largest float16 at 65504" in sparks(near)
    assert "smallest" not in sparks(near)
