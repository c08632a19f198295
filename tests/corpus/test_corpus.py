"""Every script of the corpus: recorded, it ends as it should, and its diagnosis is the known one.

Scripts outside of `more/` are compared with plain `python` each time, those in it by a thorough run.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ampscope.diagnose.finding import Finding, Where
from ampscope.diagnose.rule import all_rules
from tests.corpus.runner import CASES, Case, Mark, load_cases, mark, row, run_case, same_behaviour
from tests.support.forkserver import ForkServer

CODES = {rule.code for rule in all_rules()}

NOT_FIRST: dict[str, str] = {}
"""Faults whose cause is found but not ranked first, with the reason: at most one in twenty."""


@pytest.mark.corpus
@pytest.mark.parametrize("case", load_cases(), ids=lambda case: case.file)
def test_case(
    case: Case, fork_server: ForkServer, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    result = run_case(case, fork_server, tmp_path / "run", plain=not case.file.startswith("more/"))
    found = result.diagnosis.findings
    marked = mark(case, found)
    record_property("corpus", json.dumps(row(case, result, marked)))

    wrong = same_behaviour(case, result)
    if not case.healthy and not CODES.intersection(case.expect):
        assert not wrong, "\n".join(wrong)
        pytest.skip(f"no rule for {' or '.join(case.expect)} yet: only compared with plain python")
    if not case.healthy and marked.rank is None:
        wrong.append(f"missed: {case.expect}")
    elif not case.healthy and marked.rank != 1 and case.file not in NOT_FIRST:
        wrong.append(f"{case.expect} only in place {marked.rank}")
    if marked.false_alarms:
        wrong.append(f"false alarms: {marked.false_alarms}")
    assert not wrong, "\n".join([*wrong, "findings:", *(f"{f.code} {f.severity}: {f.claim}" for f in found)])


@pytest.mark.corpus
@pytest.mark.thorough
@pytest.mark.parametrize(
    "case", [c for c in load_cases() if c.file.startswith("more/")], ids=lambda case: case.file
)
def test_a_further_case_behaves_as_without(case: Case, fork_server: ForkServer, tmp_path: Path) -> None:
    assert not same_behaviour(case, run_case(case, fork_server, tmp_path / "run", plain=True))


def test_at_most_one_fault_in_twenty_may_rank_lower() -> None:
    faults = {case.file for case in load_cases() if not case.healthy}

    assert set(NOT_FIRST) <= faults
    assert len(NOT_FIRST) <= len(faults) / 20


def test_every_script_is_a_case() -> None:
    listed = {case.file for case in load_cases()}

    assert listed == {str(path.relative_to(CASES)) for path in CASES.rglob("*.py")}
    assert sum(case.healthy for case in load_cases()) >= 40


def _finding(code: str, severity: str) -> Finding:
    return Finding(code, "", severity, Where(), "", "")  # type: ignore[arg-type]


def test_marks() -> None:
    case = Case("x.py", expect=("AMP101",), also=("AMP506",))
    right, also, wrong, hint = (
        _finding("AMP101", "critical"),
        _finding("AMP506", "warning"),
        _finding("AMP401", "warning"),
        _finding("AMP703", "info"),
    )

    assert mark(case, (right, also, hint)) == Mark(1, ())
    assert mark(case, (wrong, right)) == Mark(2, ("AMP401",))
    assert mark(case, (hint,)) == Mark(None, ())
    assert mark(Case("healthy.py"), (hint, wrong)) == Mark(None, ("AMP401",))
